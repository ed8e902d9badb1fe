//! What real machines have said, and what none has.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;

#[test]
fn the_load_is_that_of_the_last_minute() {
    assert_eq!(load_average(b"2.21 1.37 0.59 5/104 11086\n"), Some(2.21));
    for strange in ["", "\n", "x 1 2", "nan 0 0", "inf 0 0", "-1 0 0"] {
        assert_eq!(load_average(strange.as_bytes()), None, "{strange:?}");
    }
}

#[test]
fn memory_is_what_there_is_and_what_may_be_swapped() {
    let text = b"MemTotal:       24683656 kB\nMemFree:        20642396 kB\n\
        SwapCached:            0 kB\nSwapTotal:       2097148 kB\nSwapFree:        2097000 kB\n";
    let found = Memory::parse(text);
    let expected = Memory {
        total_kib: 24_683_656,
        free_swap_kib: 2_097_000,
    };
    assert_eq!(found, Some(expected));
    let found = Memory::parse(b"MemTotal: 5 kB\n").expect("is there");
    assert_eq!((found.total_kib, found.free_swap_kib), (5, 0));
    assert_eq!(Memory::parse(b"SwapFree: 5 kB\nMemTotal: many kB\n"), None);
}

/// Two processors of one core, and one of another.
const PROCESSORS: &str = "processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
cache size\t: 512 KB
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse sse2 ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt xsave avx f16c lahf_lm abm bmi1 avx2 bmi2

processor\t: 1
cpu family\t: 25
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu

processor\t: 2
physical id\t: 0
core id\t\t: 1

";

#[test]
fn processors_are_counted_with_and_without_their_hyperthreads() {
    let found = Processors::parse(PROCESSORS.as_bytes()).expect("is there");
    assert_eq!((found.threads, found.cores), (3, 2));
    let numbers = (found.family, found.model, found.cache_kib);
    assert_eq!(numbers, (Some(25), Some(1), Some(512)));
    let published: Vec<_> = found.published_flags().collect();
    assert_eq!(published, ["avx", "avx2", "sse4_1", "sse4_2", "ssse3"]);
    // A machine that says nothing of cores has as many as processors.
    let plain = Processors::parse(b"processor : 0\n\nprocessor : 1\n").expect("is there");
    assert_eq!((plain.threads, plain.cores), (2, 2));
    assert_eq!(Processors::parse(b"flags : fpu\n"), None);
}

#[test]
fn the_level_of_a_processor_is_what_its_flags_reach() {
    let mut processors = Processors::parse(PROCESSORS.as_bytes()).expect("is there");
    assert_eq!(processors.microarch(), "x86_64-v3");
    for flag in ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"] {
        assert_eq!(processors.microarch(), "x86_64-v3");
        processors.flags.insert(flag.to_owned());
    }
    assert_eq!(processors.microarch(), "x86_64-v4");
    processors.flags.retain(|flag| !flag.starts_with("avx"));
    assert_eq!(processors.microarch(), "x86_64-v2");
    processors.flags.remove("cx16");
    assert_eq!(processors.microarch(), "x86_64-v1");
}

/// Of a notebook.
const INTERRUPTS: &str = "            CPU0       CPU1
   1:          0      21345   IO-APIC    1-edge      i8042
   8:          1          0   IO-APIC    8-edge      rtc0
  12:        100          7   IO-APIC   12-edge      i8042
 122:         55          0   IR-PCI-MSI 327680-edge      xhci_hcd
 133:          0         12   intel-gpio  19  i2c_hid_acpi
 NMI:          8          9   Non-maskable interrupts
 ERR:          0
";

#[test]
fn interrupts_of_keyboards_and_mice_are_counted() {
    assert_eq!(presses(INTERRUPTS.as_bytes()), Some(21_345 + 107 + 12));
    let typed = INTERRUPTS.replace("21345", "21346");
    assert_ne!(presses(typed.as_bytes()), presses(INTERRUPTS.as_bytes()));
    // The controller of a USB keyboard serves disks too.
    let usb = " 122: 55 0 IR-PCI-MSI 327680-edge xhci_hcd\n 26: 9 IO-APIC 4-edge ttyS0\n";
    assert_eq!(presses(usb.as_bytes()), None);
}

#[test]
fn keyboards_and_mice_are_found_among_the_input_devices() {
    let text = "I: Bus=0019 Vendor=0000\nN: Name=\"Power Button\"\nH: Handlers=event9\n\n\
        N: Name=\"AT keyboard\"\nH: Handlers=sysrq kbd event0 leds \n\n\
        N: Name=\"Mouse\"\nH: Handlers=mouse0 event1x event12 \n";
    assert_eq!(input_devices(text.as_bytes()), ["event0", "event12"]);
}

/// A record of utmp(5).
fn login(kind: i16, line: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 384];
    record[..2].copy_from_slice(&kind.to_le_bytes());
    record[8..8 + line.len()].copy_from_slice(line);
    record[44..47].copy_from_slice(b"ann");
    record
}

#[test]
fn terminals_of_users_are_found_and_others_are_not() {
    let records = [
        login(2, b"~"),
        login(7, b"tty1"),
        login(8, b"pts/7"),
        login(7, b"pts/0"),
        login(7, b":0"),
        login(7, b"../etc/passwd"),
        login(7, b"/etc/passwd"),
        login(7, b"unix:0"),
        login(7, b""),
        login(7, &[b'x'; 32]),
    ];
    let found = users_terminals(&records.concat());
    let long = format!("/dev/{}", "x".repeat(32));
    let expected = ["/dev/tty1", "/dev/pts/0", "/dev/:0", &long].map(PathBuf::from);
    assert_eq!(found, expected);
    // A record that is being written.
    let half = users_terminals(&login(7, b"tty1")[..383]);
    assert!(half.is_empty(), "{half:?}");
}

#[test]
fn distributions_are_named_as_in_the_original() {
    let read = |issue: &str, release: &str| {
        let found = Distribution::parse(issue.as_bytes(), release.as_bytes());
        let and_version = found.and_version();
        (found.long_name, and_version, found.version)
    };
    let is =
        |long: &str, and_version: &str, version| (long.to_owned(), and_version.to_owned(), version);
    let debian = is("Debian GNU/Linux 12", "Debian12", 1200);
    assert_eq!(read("Debian GNU/Linux 12 \\n \\l\n\n", ""), debian);
    let ubuntu = is("Ubuntu 24.04.1 LTS", "Ubuntu24", 2404);
    assert_eq!(read("Ubuntu 24.04.1 LTS \\n \\l\n", ""), ubuntu);
    let release = "NAME=\"Rocky Linux\"\nVERSION_ID=\"9.4\"\nPRETTY_NAME=\"x\"\n";
    let rocky = is("Rocky Linux 9.4", "Rocky9", 904);
    assert_eq!(read("\\S\nKernel \\r on an \\m\n", release), rocky);
    assert_eq!(read("", "NAME=Gentoo\n"), is("Gentoo", "LINUX0", 0));
    assert_eq!(read("", ""), is("Unknown", "LINUX0", 0));
    let redhat = is("Red Hat Enterprise Linux 8", "RedHat8", 800);
    assert_eq!(read("Red Hat Enterprise Linux 8", ""), redhat);
}

#[test]
fn a_host_has_the_full_name_that_it_knows() {
    let hosts = b"127.0.0.1 localhost\n# 10.0.0.1 vulture.example.org vulture\n\
        10.0.0.7 mail.example.org vulture.cs.wisc.edu vulture # the old one\n";
    assert_eq!(full_name(hosts, "vulture"), "vulture.cs.wisc.edu");
    assert_eq!(full_name(hosts, "eagle"), "eagle");
    assert_eq!(full_name(hosts, "eagle.example.org"), "eagle.example.org");
    assert_eq!(full_name(b"127.0.1.1 vm\n", "vm"), "vm");
}

#[test]
fn what_a_process_uses_is_read_behind_its_name() {
    let text = b"4711 (a) b (c)) S 1 4711 4711 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5000 10485760 300 1\n";
    let found = ProcessUse::parse(text).expect("is there");
    assert_eq!((found.ticks, found.virtual_bytes), (300, 10_485_760));
    assert_eq!(ProcessUse::parse(b"4711 (a) S 1"), None);
}

#[test]
fn the_control_group_is_that_of_the_unified_hierarchy() {
    assert_eq!(
        control_group(b"0::/user.slice/a\n").as_deref(),
        Some("/user.slice/a")
    );
    assert_eq!(control_group(b"1:memory:/a\n"), None);
    assert_eq!(control_group(b"0::/../a\n"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
        every_parser(&bytes);
    }

    #[test]
    fn nothing_that_looks_right_makes_a_parser_panic(
        text in "(processor|flags|core id|MemTotal|SwapFree|H: Handlers=|0::|[0-9]{1,25}|i8042|kbd|event[0-9]*|[:\\(\\)\n\t .#/-]|kB|VERSION_ID=|NAME=|Debian ){0,80}",
    ) {
        every_parser(text.as_bytes());
    }
}

fn every_parser(bytes: &[u8]) {
    load_average(bytes);
    Memory::parse(bytes);
    if let Some(found) = Processors::parse(bytes) {
        let _ = found.microarch();
        assert!(found.cores <= found.threads);
    }
    presses(bytes);
    input_devices(bytes);
    let devices = users_terminals(bytes);
    assert!(devices.iter().all(|path| path.starts_with("/dev/")));
    let _ = Distribution::parse(bytes, bytes).and_version();
    full_name(bytes, "host");
    ProcessUse::parse(bytes);
    control_group(bytes);
}
