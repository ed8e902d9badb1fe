//! Images from the command's side: inspect, verify, flatten, platform, export,
//! and what is said of damaged ones. The images are made up here.

use crate::station::{Station, text};
use ckpt_lib::image::{Bytes, Image, ImageParts, ImageWriter, WriteOptions};
use ckpt_lib::loader_code;
use ckpt_lib::plan::{Arg, OpsBuilder, StreamIndex};
use ckpt_lib::platform::Platform;
use ckpt_lib::snapshot::{Mapping, MappingKind, Process, SnapshotV1, Thread, TimedCall};
use loader::layout::{HEADER_OFFSET, SectionKind, Space};
use loader::ops::{Expect, Fill, OpsHeader, StreamKind};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const HOLE: u64 = 0x2000_0000_0000;
const MEMORY: u64 = 0x10_0000;
const MEMORY_LEN: u64 = 0x8_0000;

fn snapshot() -> SnapshotV1 {
    let mut process = Process {
        pid: 4711,
        threads: vec![Thread {
            tid: 4711,
            name: b"worker"[..].into(),
            ..Thread::default()
        }],
        cwd: b"/tmp"[..].into(),
        ..Process::default()
    };
    // In read, wait4 and a call without a name, none with a time-out; in poll with one; and in none.
    let calls = [(0, -512), (61, -512), (9999, -514), (7, -516), (39, 4711)];
    for (index, (nr, result)) in calls.into_iter().enumerate() {
        let mut thread = Thread {
            tid: 5000 + index as u32,
            in_call: (nr == 7).then_some(TimedCall {
                nr,
                remaining_ns: 1_234_000_000,
            }),
            ..Thread::default()
        };
        thread.registers.orig_rax = nr;
        thread.registers.rax = i64::cast_unsigned(result);
        process.threads.push(thread);
    }
    process.memory.mappings.push(Mapping {
        start: MEMORY,
        end: MEMORY + 2 * MEMORY_LEN,
        prot: 3,
        kind: MappingKind::Anonymous { huge_shift: 0 },
        flags: 0,
        pkey: 0,
        name: Default::default(),
    });
    let mut snapshot = SnapshotV1 {
        processes: vec![process],
        ..SnapshotV1::default()
    };
    snapshot.taken.generation = 3;
    snapshot
}

fn memory() -> Vec<u8> {
    (0..MEMORY + MEMORY_LEN)
        .map(|at| (at / 11) as u8 | 1)
        .collect()
}

/// An image that needs `platform`.
fn image(path: &Path, platform: &str) -> PathBuf {
    let mut writer = ImageWriter::create(path, WriteOptions::default()).expect("created");
    let ranges = [MEMORY..MEMORY + MEMORY_LEN];
    writer
        .store(Space::Process(0), &ranges, &memory(), &|_| ())
        .expect("stored");
    commit(writer, platform);
    path.to_owned()
}

/// An image whose memory is ones up to the middle, and from there on what it is in `earlier`.
fn image_on(earlier: &Path, path: &Path) -> PathBuf {
    let earlier = Image::open(earlier).expect("opens");
    let mut writer = ImageWriter::create(path, WriteOptions::default()).expect("created");
    let platform = earlier.platform().to_owned();
    writer.build_on(earlier).expect("can be named");
    let (middle, end) = (MEMORY + MEMORY_LEN / 2, MEMORY + MEMORY_LEN);
    let mut changed = memory();
    changed[..middle as usize].fill(1);
    writer
        .store(Space::Process(0), &[MEMORY..end], &changed, &|_| ())
        .expect("stored");
    commit(writer, &platform);
    path.to_owned()
}

/// Ends an image of one process that maps this memory.
fn commit(writer: ImageWriter, platform: &str) {
    let mut ops = OpsBuilder::new(OpsHeader::default());
    let process = ops.stream(StreamKind::Process, 0, StreamIndex(0));
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
    let map = [MEMORY, 2 * MEMORY_LEN, 3, flags, u64::MAX, 0].map(Arg::Value);
    ops.call(
        process,
        "memory",
        libc::SYS_mmap,
        &map,
        Expect::Exactly,
        MEMORY,
    );
    ops.push(process, &Fill { process: 0 }, &[]);
    let ops = ops.finish().expect("finished");
    let meta = Image::encode_snapshot(&snapshot()).expect("encoded");
    let parts = ImageParts {
        platform,
        ops: Bytes::from(&ops),
        meta: Bytes::from(&meta[..]),
        loader: &loader_code::link(HOLE).expect("linked"),
        hole: HOLE..HOLE + (64 << 20),
    };
    writer.commit(&parts).expect("committed");
}

fn words(path: &Path) -> String {
    path.display().to_string()
}

fn good_image(station: &Station) -> String {
    let platform = Platform::needed_by(&snapshot()).to_string();
    words(&image(&station.state.path().join("good.img"), &platform))
}

#[test]
fn inspect_shows_what_an_image_holds() {
    let station = Station::new();
    let image = good_image(&station);
    let report = station.json(&["inspect", "--json", &image]);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["taken"]["generation"], 3);
    assert_eq!(report["contents"]["memory_bytes"], MEMORY_LEN);
    let process = &report["processes"][0];
    assert_eq!(process["pid"], 4711);
    assert_eq!(process["threads"][0]["name"], "worker");
    let calls: Vec<_> = (0..6)
        .map(|at| &process["threads"][at]["in_call"])
        .collect();
    let none = serde_json::Value::Null;
    let expected = ["", "read", "wait4", "system call 9999", "poll"].map(serde_json::Value::from);
    assert_eq!(
        calls,
        [
            &none,
            &expected[1],
            &expected[2],
            &expected[3],
            &expected[4],
            &none
        ]
    );
    let memory = &process["memory"][0];
    assert_eq!(memory["kind"], "anonymous");
    assert_eq!(memory["mapped_bytes"], 2 * MEMORY_LEN);
    assert_eq!(memory["stored_bytes"], MEMORY_LEN);
    let said = text(&station.output(&["inspect", &image]).stdout);
    for expected in [
        "wait4\n",
        "system call 9999\n",
        "poll, 1234 ms left",
        "process 4711",
        "worker",
        "512.0 KiB",
        "LINUX X86_64",
    ] {
        assert!(said.contains(expected), "no {expected} in {said}");
    }
}

#[test]
fn verify_tells_good_from_damaged() {
    let station = Station::new();
    let image = good_image(&station);
    let output = station.output(&["verify", &image]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = station.json(&["verify", "--json", &image]);
    assert_eq!(
        (&report["good"], &report["contents_bytes"]),
        (&true.into(), &MEMORY_LEN.into())
    );

    let opened = Image::open(Path::new(&image)).expect("opens");
    let pages = opened.header().section(SectionKind::Pages).offset;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image)
        .expect("open");
    file.write_all_at(b"\0", pages + 300_000).expect("damage");
    let output = station.output(&["verify", &image]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains(&image) && said.contains(".wf.pages chunk 1"),
        "{said}"
    );
    let output = station.output(&["verify", "--json", &image]);
    assert_eq!(output.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["good"], false);
}

#[test]
fn what_is_no_image_is_refused_by_every_verb() {
    let station = Station::new();
    let soup = station.state.path().join("soup.img");
    std::fs::write(&soup, vec![7; 20_000]).expect("write");
    std::fs::set_permissions(&soup, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let (soup, out) = (words(&soup), words(&station.state.path().join("out")));
    let dir = words(station.state.path());
    // A good one with other bytes, so many of them.
    let good = std::fs::read(good_image(&station)).expect("read");
    let bad = |name: &str, bytes: &[u8]| {
        let path = station.state.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        words(&path)
    };
    let mut of_another_version = good.clone();
    of_another_version[HEADER_OFFSET as usize + 8] = 7;
    let cases = [
        (soup, ".wf.header"),
        (dir, "a directory"),
        (
            bad("empty.img", b""),
            "it ends before the end of .wf.header",
        ),
        (bad("half.img", &good[..good.len() / 2]), "it ends in .wf."),
        (bad("short.img", &good[..good.len() - 1]), "it ends in .wf."),
        (
            bad("version.img", &of_another_version),
            ".wf.header: it is of format version 7, expected 1",
        ),
    ];
    for (image, reason) in &cases {
        let lines: [&[&str]; 6] = [
            &["inspect", image],
            &["verify", image],
            &["flatten", image, "-o", &out],
            &["platform", "--check", image],
            &["export", "--core", image, &out],
            &["restart", image],
        ];
        for line in lines {
            let output = station.output(line);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{line:?}: {said}");
            assert!(
                said.contains(image.as_str()) && said.contains(reason),
                "{line:?}: {said}, expected {reason:?}"
            );
        }
    }
    for line in [
        ["inspect", "nowhere.img"],
        ["verify", "nowhere.img"],
        ["restart", "./nowhere"],
    ] {
        assert_eq!(station.output(&line).status.code(), Some(2), "{line:?}");
    }
}

#[test]
fn flatten_writes_a_whole_image_and_overwrites_nothing() {
    let station = Station::new();
    let image = good_image(&station);
    let flat = words(&station.state.path().join("flat.img"));
    let output = station.output(&["flatten", &image, "-o", &flat]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(station.json(&["verify", "--json", &flat])["good"], true);
    let output = station.output(&["flatten", &image, "-o", &flat]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("exists already"));
    let again = format!("{flat}.again");
    let report = station.json(&["flatten", &image, "-o", &again, "--json"]);
    let bytes = std::fs::metadata(&again).expect("is there").len();
    assert_eq!(report["image"], again.as_str(), "{report}");
    assert_eq!(report["bytes"], bytes, "{report}");
}

#[test]
fn flatten_makes_one_image_of_a_chain() {
    let station = Station::new();
    let place = |name: &str| station.state.path().join(name);
    let first = good_image(&station);
    let second = words(&image_on(Path::new(&first), &place("second.img")));
    let bases = |image: &str| {
        let contents = &station.json(&["inspect", "--json", image])["contents"];
        contents["bases"].clone()
    };
    assert_eq!(bases(&second), serde_json::json!([first]));
    assert_eq!(station.json(&["verify", "--json", &second])["good"], true);
    let flat = place("flat.img");
    let output = station.output(&["flatten", &second, "-o", &words(&flat)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    std::fs::remove_file(&first).expect("remove");
    let output = station.output(&["verify", &second]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(&first), "{said}");
    let report = station.json(&["verify", "--json", &words(&flat)]);
    assert_eq!(report["contents_bytes"], MEMORY_LEN);
    assert_eq!(bases(&words(&flat)), serde_json::json!([]));
    let mut found = vec![0; MEMORY_LEN as usize];
    Image::open(&flat)
        .and_then(|flat| flat.read_space(Space::Process(0), MEMORY, &mut found))
        .expect("reads");
    let middle = found.len() / 2;
    assert!(found[..middle].iter().all(|byte| *byte == 1));
    assert!(found[middle..] == memory()[MEMORY as usize + middle..]);
}

#[test]
fn platform_says_whether_an_image_may_restart() {
    let station = Station::new();
    let output = station.output(&["platform"]);
    let offered = text(&output.stdout);
    assert!(offered.starts_with("LINUX X86_64"), "{offered}");
    offered.trim().parse::<Platform>().expect("parses");
    assert_eq!(
        station.json(&["platform", "--json"])["platform"],
        offered.trim()
    );

    let image_path = good_image(&station);
    let output = station.output(&["platform", "--check", &image_path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));

    let mut needs: Platform = offered.trim().parse().expect("parses");
    needs.features.insert("teleportation".to_owned());
    let strange = image(
        &station.state.path().join("strange.img"),
        &needs.to_string(),
    );
    let output = station.output(&["platform", "--check", &words(&strange)]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).contains("teleportation"));
    let output = station.output(&["restart", &words(&strange)]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("teleportation"), "{said}");
    let jobs = station.json(&["ps", "--json"]);
    assert_eq!(
        jobs["jobs"].as_array().map(Vec::len),
        Some(0),
        "a record was left: {jobs}"
    );
}

#[test]
fn export_writes_a_core() {
    let station = Station::new();
    let image = good_image(&station);
    let core = station.state.path().join("core");
    let output = station.output(&["export", "--core", &image, &words(&core)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let bytes = std::fs::read(&core).expect("core");
    assert!(bytes.starts_with(b"\x7fELF"), "{} bytes", bytes.len());
    let again = words(&station.state.path().join("again"));
    let report = station.json(&["export", "--core", "--json", &image, &again]);
    assert_eq!(report["core"], again.as_str(), "{report}");
    assert_eq!(report["bytes"], bytes.len(), "{report}");
    let output = station.output(&["export", "--core", "--pid", "99", &image, "/tmp/none"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.contains(&image) && said.contains("no process 99, but ["),
        "{said}"
    );
    let nowhere = station.state.path().join("nowhere/core");
    let output = station.output(&["export", "--core", &image, &words(&nowhere)]);
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("core {} could", words(&nowhere))),
        "{said}"
    );
}

#[test]
fn doctor_reports_in_words_and_in_json() {
    let station = Station::new();
    let report = station.json(&["doctor", "--json"]);
    assert_eq!(
        (&report["schema_version"], &report["usable"]),
        (&1.into(), &true.into())
    );
    let facts = report["facts"].as_array().expect("facts");
    let names: Vec<&str> = facts
        .iter()
        .filter_map(|fact| fact["name"].as_str())
        .collect();
    for name in [
        "user_namespace",
        "ptrace_scope",
        "userfaultfd",
        "pagemap_scan",
        "cpuid_faults",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let output = station.output(&["doctor"]);
    assert!(text(&output.stdout).contains("Jobs can be checkpointed"));
}
