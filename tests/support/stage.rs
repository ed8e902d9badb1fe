//! Where test programs are built, and where each job keeps its files.
//!
//! The ordinary user must be able to reach it, so it lies in `target/` only if
//! all directories above are open to everybody, else in `/var/tmp`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `target/`, from the directory that cargo gives to tests.
fn target() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).to_path_buf()
}

fn open_to_all(path: &Path) -> bool {
    path.ancestors().all(|dir| {
        dir.as_os_str().is_empty()
            || fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005)
    })
}

/// The stage's directory.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let uid = nix::unistd::geteuid();
        let dir = if open_to_all(&target()) {
            target().join("guests")
        } else {
            PathBuf::from(format!("/var/tmp/wayfarer-tests-{uid}"))
        };
        fs::create_dir_all(&dir).expect("make the stage");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("open the stage");
        dir
    })
}

/// A new directory for one job, owned by `user`; everybody may enter it.
pub fn job_dir(label: &str, user: super::user::User) -> PathBuf {
    let jobs = dir().join("jobs");
    fs::create_dir_all(&jobs).expect("make the directory of jobs");
    let dir = tempfile::Builder::new()
        .prefix(&format!("{label}-"))
        .tempdir_in(jobs)
        .expect("make a directory for the job")
        .keep();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("open the job's directory");
    user.own(&dir);
    dir
}

/// Keeps what a failed job left, with its log; says where.
pub fn keep_artefacts(job: &Path, log: &str) -> PathBuf {
    let kept = target().join("test-artefacts");
    let name = job.file_name().unwrap_or_default();
    let place = kept.join(name);
    let _ = fs::create_dir_all(&kept);
    let _ = fs::remove_dir_all(&place);
    let moved = Command::new("cp").arg("-a").arg(job).arg(&place).status();
    let place = if moved.is_ok_and(|status| status.success()) {
        let _ = fs::remove_dir_all(job);
        place
    } else {
        job.to_path_buf()
    };
    let _ = fs::write(place.join("log"), log);
    place
}

/// The command under test, where every user can execute it.
pub fn wayfarer() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_wayfarer"));
    if open_to_all(built.parent().unwrap_or(built)) {
        return built.to_path_buf();
    }
    let staged = dir().join("wayfarer");
    build_if_older(&staged, &[built.to_path_buf()], |beside| {
        let mut command = Command::new("cp");
        command.arg(built).arg(beside);
        command
    })
    .expect("copy the command to the stage");
    staged
}

/// Makes `product` with the command that `recipe` gives, unless it is newer than `sources`.
///
/// # Errors
/// What the command said, or that it is not there.
pub fn build_if_older(
    product: &Path,
    sources: &[PathBuf],
    recipe: impl FnOnce(&Path) -> Command,
) -> Result<(), String> {
    let lock_path = product.with_extension("lock");
    let lock = fs::File::create(&lock_path).map_err(|error| format!("{lock_path:?}: {error}"))?;
    let _held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, error)| format!("{lock_path:?}: {error}"))?;
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    if let Ok(made) = modified(product)
        && sources
            .iter()
            .all(|source| modified(source).is_ok_and(|changed| changed < made))
    {
        return Ok(());
    }
    let beside = product.with_extension("new");
    let mut command = recipe(&beside);
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{said}", output.status));
    }
    fs::rename(&beside, product).map_err(|error| format!("{product:?}: {error}"))
}

/// How a C guest is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// Against the system's glibc.
    Dynamic,
    /// glibc inside.
    Static,
    /// musl inside.
    Musl,
    /// Against the system's musl.
    MuslDynamic,
}

impl Linking {
    /// As `WF_LINKING` says; without it against the system's glibc.
    pub fn wanted() -> Self {
        match std::env::var("WF_LINKING").as_deref() {
            Err(_) | Ok("dynamic") => Linking::Dynamic,
            Ok("static") => Linking::Static,
            Ok("musl") => Linking::Musl,
            Ok("musl-dynamic") => Linking::MuslDynamic,
            Ok(other) => panic!(
                "WF_LINKING={other}: found {other}, expected dynamic, static, musl or musl-dynamic"
            ),
        }
    }
}

/// The kernel's headers alone, for a compiler that must not see glibc's beside them.
fn kernel_headers() -> Result<PathBuf, String> {
    let place = dir().join("kernel-headers");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let multiarch = Path::new("/usr/include/x86_64-linux-gnu");
    for name in ["linux", "asm", "asm-generic"] {
        let folders = [multiarch.join(name), Path::new("/usr/include").join(name)];
        let found = folders.iter().find(|folder| folder.is_dir());
        let found = found.ok_or(format!(
            "No such file or directory: the kernel's <{name}/...>"
        ))?;
        match std::os::unix::fs::symlink(found, place.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", place.join(name).display()));
            }
            _ => {}
        }
    }
    Ok(place)
}

/// The C guest `tests/guests/NAME.c`, built.
///
/// # Errors
/// Why it cannot be built here.
pub fn c_guest(name: &str, linking: Linking) -> Result<PathBuf, String> {
    let (compiler, suffix, link) = match linking {
        Linking::Dynamic => ("gcc", "", None),
        Linking::Static => ("gcc", "-static", Some("-static")),
        Linking::Musl => ("musl-gcc", "-musl", Some("-static")),
        Linking::MuslDynamic => ("musl-gcc", "-musl-dynamic", None),
    };
    let kernel_headers = match linking {
        Linking::Musl | Linking::MuslDynamic => Some(kernel_headers()?),
        Linking::Dynamic | Linking::Static => None,
    };
    let folder = repository().join("tests/guests");
    let source = folder.join(format!("{name}.c"));
    let shared = folder.join("guest.c");
    let product = dir().join(format!("{name}{suffix}"));
    let headers = [
        "guest.h",
        "transcript.h",
        "lacking.h",
        "newer.h",
        "file_size.h",
        "named.h",
    ];
    let mut sources = vec![source.clone(), shared.clone()];
    sources.extend(headers.iter().map(|name| folder.join(name)));
    build_if_older(&product, &sources, |beside| {
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"])
            .args(link);
        if let Some(headers) = &kernel_headers {
            command.arg("-idirafter").arg(headers);
        }
        command
            .arg(&shared)
            .arg(&source)
            .arg("-o")
            .arg(beside)
            .arg("-lrt");
        command
    })?;
    Ok(product)
}

/// The tool `tests/hosts/NAME.c`, built: statically, since nothing of this machine is on the hosts that it makes.
///
/// # Errors
/// Why it cannot be built here.
pub fn host_tool(name: &str) -> Result<PathBuf, String> {
    let folder = repository().join("tests/hosts");
    let files = [format!("{name}.c"), "host.h".into(), "login.h".into()];
    let sources = files.map(|file| folder.join(file));
    let tool = dir().join(name.replace('_', "-"));
    build_if_older(&tool, &sources, |beside| {
        let mut command = Command::new("gcc");
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-static"]);
        command.arg(&sources[0]).arg("-o").arg(beside);
        command
    })?;
    Ok(tool)
}

/// The Go guest `tests/guests/NAME.go`, built; with `cgo`, by a C linker and against the system's glibc.
///
/// # Errors
/// Why it cannot be built here.
pub fn go_guest(name: &str, cgo: bool) -> Result<PathBuf, String> {
    let source = repository().join(format!("tests/guests/{name}.go"));
    let suffix = if cgo { "-cgo" } else { "-go" };
    let product = dir().join(format!("{name}{suffix}"));
    build_if_older(&product, std::slice::from_ref(&source), |beside| {
        let mut command = Command::new("go");
        command.arg("build");
        if cgo {
            command.args(["-ldflags", "-linkmode=external"]);
        }
        command.arg("-o").arg(beside).arg(&source);
        let enabled = if cgo { "1" } else { "0" };
        command
            .env("CGO_ENABLED", enabled)
            .env("GO111MODULE", "off");
        command.env("GOCACHE", dir().join("go-cache"));
        command
    })?;
    Ok(product)
}
