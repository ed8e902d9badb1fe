//! The `syscall` instructions of this machine's libc and ld.so.

use c_shim::rewrite::{Found, Functions, Number, Site, Table, find};
use goblin::elf::Elf;
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_LOAD};
use proptest::prelude::*;
use std::fs;
use std::slice;

/// An object as it is mapped.
struct Object {
    bytes: Vec<u8>,
    text: std::ops::Range<u64>,
    header: u64,
}

fn object(path: &str) -> Object {
    let file = fs::read(path).expect("is there");
    let elf = Elf::parse(&file).expect("is ELF");
    let loads = || {
        elf.program_headers
            .iter()
            .filter(|header| header.p_type == PT_LOAD)
    };
    let end = loads().map(|load| load.p_vaddr + load.p_memsz).max();
    let mut bytes = vec![0; end.expect("loads something") as usize];
    for load in loads() {
        let from = &file[load.file_range()];
        bytes[load.p_vaddr as usize..][..from.len()].copy_from_slice(from);
    }
    let header = elf
        .program_headers
        .iter()
        .find(|header| header.p_type == PT_GNU_EH_FRAME);
    let text = loads().find(|load| load.is_executable()).expect("has code");
    Object {
        text: text.p_vaddr..text.p_vaddr + text.p_memsz,
        header: header.expect("has a table of functions").p_vaddr,
        bytes,
    }
}

fn sites(path: &str) -> (Object, Found) {
    let object = object(path);
    let found = find(
        &object.bytes,
        slice::from_ref(&object.text),
        Some(&Table::Sorted(object.header)),
        |_| true,
    )
    .expect("can be read");
    (object, found)
}

#[test]
fn every_site_is_a_syscall_with_room_for_a_jump() {
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ] {
        let (object, found) = sites(path);
        let kept = found.sites.iter().filter(|site| site.keeps_syscall());
        println!(
            "{path}: {} sites, {} of them beside the syscall; missed: {:x?}",
            found.sites.len(),
            kept.count(),
            found.missed
        );
        for site in &found.sites {
            let at = site.syscall as usize;
            assert_eq!(object.bytes[at..at + 2], [0x0f, 0x05]);
            assert!(site.window.end - site.window.start >= 5);
            assert!(site.window.start <= site.syscall && site.window.start >= site.syscall - 75);
            assert!(site.keeps_syscall() || site.syscall + 2 <= site.window.end);
        }
        let mut windows: Vec<_> = found.sites.iter().map(|site| site.window.clone()).collect();
        windows.sort_by_key(|window| window.start);
        for pair in windows.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:x?} overlap");
        }
        assert!(found.sites.len() >= 40);
        // What is left over is no call on files: futex, arch_prctl.
        let harmless = |number| matches!(number, Number::Known(158 | 202));
        assert!(found.missed.iter().all(|one| harmless(one.number)));
    }
}

/// Their descriptions end before the instruction.
#[test]
fn calls_that_make_processes_are_found() {
    let (_, found) = sites("/lib/x86_64-linux-gnu/libc.so.6");
    for number in [56, 58, 435] {
        let of_it = |site: &&Site| site.number == Number::Known(number);
        assert!(found.sites.iter().find(of_it).is_some(), "{number}");
    }
}

/// The kernel goes there by itself, and its description begins a byte early.
#[test]
fn what_signal_handlers_return_to_is_left_alone() {
    let (object, found) = sites("/lib/x86_64-linux-gnu/libc.so.6");
    // mov $15, %rax; syscall
    let code = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    let place = object.bytes.windows(code.len()).position(|it| it == code);
    let place = place.expect("glibc returns from signal handlers so") as u64;
    let window = place..place + code.len() as u64;
    let inside = |site: &&Site| site.window.start < window.end && window.start < site.window.end;
    assert_eq!(found.sites.iter().find(inside), None);
}

/// The descriptions alone tell the same functions as the table that is sorted.
#[test]
fn both_tables_tell_the_same_functions() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let object = object(path);
    let file = fs::read(path).expect("is there");
    let elf = Elf::parse(&file).expect("is ELF");
    let name = |section: &goblin::elf::SectionHeader| elf.shdr_strtab.get_at(section.sh_name);
    let section = elf
        .section_headers
        .iter()
        .find(|one| name(one) == Some(".eh_frame"));
    let section = section.expect("has descriptions").vm_range();
    let section = section.start as u64..section.end as u64;
    let all = |table| {
        let functions = Functions::new(&object.bytes, &table).expect("is known");
        let mut functions: Vec<_> = functions.map(|one| one.expect("sound")).collect();
        functions.sort_by_key(|one| one.range.start);
        functions
    };
    let sorted = all(Table::Sorted(object.header));
    assert!(sorted.len() > 3000);
    assert!(sorted.iter().any(|one| one.is_signal_frame));
    assert_eq!(all(Table::Described(section)), sorted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damaged_tables_are_errors_or_harmless(
        sorted in any::<bool>(),
        damage in prop::collection::vec((0..20_000u64, any::<u8>()), 1..20),
    ) {
        let mut object = object("/lib64/ld-linux-x86-64.so.2");
        for (at, byte) in damage {
            // The descriptions lie behind the table.
            let place = (object.header + at) as usize;
            if let Some(there) = object.bytes.get_mut(place) {
                *there = byte;
            }
        }
        let table = if sorted {
            Table::Sorted(object.header)
        } else {
            Table::Described(object.header + 2000..object.header + 20_000)
        };
        if let Ok(found) = find(&object.bytes, slice::from_ref(&object.text), Some(&table), |_| true) {
            for site in found.sites {
                let at = site.syscall as usize;
                prop_assert_eq!(&object.bytes[at..at + 2], &[0x0f, 0x05]);
            }
        }
    }
}
