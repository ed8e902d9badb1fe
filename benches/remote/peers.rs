//! The same commands on files that come by sshfs and by wayfarer, here and with half a millisecond each way, in turn. Needs root,
//! /dev/fuse, sshfs and sshd; a new mount and a new job for each command, so that nothing is known before.

use super::delay::Delay;
use super::{Shadow, Values, address, measure, median};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Small files, in folders of 60.
const FILES: usize = 3000;
/// One way.
const DELAY: Duration = Duration::from_micros(500);

/// A command, what is done before it is timed, and how many times as fast as sshfs it must be: by a unix socket, by TLS, by TLS with a delay.
struct Compared {
    name: &'static str,
    before: &'static str,
    command: &'static str,
    least: [Option<f64>; 3],
}

const fn compared(
    name: &'static str,
    before: &'static str,
    command: &'static str,
    least: [Option<f64>; 3],
) -> Compared {
    Compared {
        name,
        before,
        command,
        least,
    }
}

/// The programs themselves are known before: it is about their files.
const ALL: [Compared; 10] = [
    compared(
        "read_1024k",
        "dd --version",
        "dd if=big of=/dev/null bs=1M",
        [Some(3.0), Some(2.0), None],
    ),
    compared(
        "read_64k",
        "dd --version",
        "dd if=big of=/dev/null bs=64k",
        [Some(3.0), Some(2.0), None],
    ),
    compared(
        "read_4k",
        "dd --version",
        "dd if=big of=/dev/null bs=4k",
        [Some(3.0), Some(2.0), None],
    ),
    compared(
        "write_1024k",
        "dd --version",
        "dd if=/dev/zero of=out bs=1M count=64",
        [Some(3.0), None, None],
    ),
    compared(
        "write_64k",
        "dd --version",
        "dd if=/dev/zero of=out bs=64k count=1024",
        [Some(3.0), None, None],
    ),
    compared(
        "write_4k",
        "dd --version",
        "dd if=/dev/zero of=out bs=4k count=16384",
        [Some(3.0), None, None],
    ),
    compared(
        "tar",
        "tar --version; cat --version",
        "tar cf - tree | cat",
        [None, None, Some(8.0)],
    ),
    compared(
        "grep_r",
        "grep --version",
        "grep -r needle tree",
        [None, None, Some(8.0)],
    ),
    compared(
        "find_size",
        "find --version",
        "find tree -size +0",
        [None, None, Some(3.0)],
    ),
    compared(
        "small_shuffled",
        "xargs --version; cat --version",
        "xargs cat <list",
        [None, None, Some(3.0)],
    ),
];

/// Keys, and a server that takes them.
struct Sshd {
    child: Child,
    port: u16,
    key: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status();
    assert!(made.expect("ssh-keygen").success());
}

impl Sshd {
    fn start(dir: &Path) -> Self {
        let (host, ours) = (dir.join("host-key"), dir.join("key"));
        key(&host);
        key(&ours);
        let port = super::delay::free_port();
        let keys = dir.join("authorized");
        fs::copy(ours.with_extension("pub"), &keys).expect("copies");
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).expect("sets");
        fs::create_dir_all("/run/sshd").expect("makes it");
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PermitRootLogin yes\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n",
            host.display(),
            keys.display()
        );
        let file = dir.join("sshd");
        fs::write(&file, settings).expect("writes");
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd");
        super::delay::wait_for(port);
        Sshd {
            child,
            port,
            key: ours,
        }
    }
}

/// A folder of the server's, mounted until dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(sshd: &Sshd, port: u16, dir: &Path, at: &Path) -> Self {
        let options = format!(
            "port={port},IdentityFile={},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,BatchMode=yes",
            sshd.key.display()
        );
        let mounted = Command::new("sshfs")
            .args(["-o", &options])
            .arg(format!("root@127.0.0.1:{}", dir.display()))
            .arg(at)
            .stderr(Stdio::null())
            .status();
        assert!(mounted.expect("sshfs").success(), "sshfs does not mount");
        Mount(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(10);
        let unmount = || {
            let mut command = Command::new("fusermount3");
            command.arg("-u").arg(&self.0).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        while !unmount() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// In bash, which tells the time without another program.
fn script(compared: &Compared) -> String {
    let Compared {
        name,
        before,
        command,
        ..
    } = compared;
    format!(
        "{{ {before}; }} >/dev/null 2>&1; s=$EPOCHREALTIME; {{ {command}; }} >/dev/null 2>&1; e=$EPOCHREALTIME\n\
         echo {name} $(( (${{e/[.,]/}} - ${{s/[.,]/}}) )) us"
    )
}

fn fill(dir: &Path) {
    let mut names = vec![];
    for file in 0..FILES {
        let folder = format!("tree/{}", file / 60);
        fs::create_dir_all(dir.join(&folder)).expect("makes it");
        let name = format!("{folder}/file-{}", file * 7919 % 10007);
        let needle = if file % 100 == 0 { "needle\n" } else { "" };
        fs::write(dir.join(&name), format!("{name} {needle}").repeat(40)).expect("writes");
        names.push(name);
    }
    // Not as they are listed, nor sorted.
    let mut state = 1u32;
    for index in (1..names.len()).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        names.swap(index, state as usize % (index + 1));
    }
    names.truncate(600);
    fs::write(dir.join("list"), names.join("\n") + "\n").expect("writes");
    fs::write(dir.join("big"), vec![b'b'; 256 << 20]).expect("writes");
}

/// What is missing here for this.
pub(super) fn missing() -> Option<String> {
    for (path, how) in [
        ("/dev/fuse", "a kernel with FUSE"),
        ("/usr/bin/sshfs", "apt-get install sshfs"),
        ("/usr/sbin/sshd", "apt-get install openssh-server"),
    ] {
        if !Path::new(path).exists() {
            return Some(format!("{path} ({how})"));
        }
    }
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    (!is_root).then(|| "root".to_owned())
}

/// How many commands are slower than they may be.
pub(super) fn compare(dir: &Path, repeat: usize) -> usize {
    let home = dir.join("peers");
    let at = dir.join("mounted");
    fs::create_dir(&home).expect("makes it");
    fs::create_dir(&at).expect("makes it");
    fill(&home);
    let sshd = Sshd::start(dir);
    let identity = dir.join("peers-identity").display().to_string();
    let (_near, _) = Shadow::listening(&home, &address(&home), &[]);
    let options = ["--identity-file", &identity];
    let (_far, tls) = Shadow::listening(&home, "tls:127.0.0.1:0", &options);
    let tls_port: u16 = tls
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port");
    let slow_ssh = Delay::start(sshd.port, DELAY);
    let slow_tls = Delay::start(tls_port, DELAY);
    let slow = format!("tls:127.0.0.1:{}", slow_tls.port);
    let near = address(&home);
    // sshfs, unix, TLS; sshfs and TLS with a delay.
    let mut values: [Values; 5] = Default::default();
    for _ in 0..repeat {
        for compared in &ALL {
            let script = script(compared);
            for (index, port) in [(0, sshd.port), (3, slow_ssh.port)] {
                let mount = Mount::new(&sshd, port, &home, &at);
                let mut command = Command::new("bash");
                command.args(["-c", &script]).current_dir(&mount.0);
                measure(command, &mut values[index]);
            }
            for (index, way) in [(1, &near), (2, &tls), (4, &slow)] {
                let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
                command.arg("--dir").arg(dir.join("state"));
                command.args(["run", "-q", "--shadow", way]);
                if index != 1 {
                    command.args(["--identity-file", &identity]);
                }
                command.args(["--", "/bin/bash", "-c", &script]);
                command.current_dir(&home);
                measure(command, &mut values[index]);
            }
        }
    }
    println!(
        "{repeat} runs each, medians in ms; in brackets: how many times as fast as sshfs. Delayed: {} us each way",
        DELAY.as_micros()
    );
    println!(
        "{:<16}{:>10}{:>18}{:>18}{:>14}{:>18}",
        "", "sshfs", "unix", "tls", "sshfs delayed", "tls delayed"
    );
    let mut over = 0;
    for compared in &ALL {
        let name = format!("{} us", compared.name);
        let [sshfs, unix, tls, slow_sshfs, slow_tls] = values
            .each_ref()
            .map(|values| median(&values[&name]) / 1000.0);
        let times = [sshfs / unix, sshfs / tls, slow_sshfs / slow_tls];
        let mut verdict = String::new();
        for ((least, times), way) in compared
            .least
            .iter()
            .zip(times)
            .zip(["unix", "tls", "delayed"])
        {
            if let Some(least) = least {
                let broken = times < *least;
                over += usize::from(broken);
                verdict += &format!("   {way} {least}{}", if broken { " OVER" } else { "" });
            }
        }
        let beside = |value: f64, times: f64| format!("{value:.1} ({times:.1})");
        println!(
            "{:<16}{sshfs:>10.1}{:>18}{:>18}{slow_sshfs:>14.1}{:>18}{verdict}",
            compared.name,
            beside(unix, times[0]),
            beside(tls, times[1]),
            beside(slow_tls, times[2]),
        );
    }
    over
}
