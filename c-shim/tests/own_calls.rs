//! Calls in code that is no C library's: what is led elsewhere, what is data, and what is neither.

use c_shim::elf::Elf;
use c_shim::rewrite::{Found, Missed, Number, Refused, Site, Table, find, may_call};
use std::fs;

const CODE: u64 = 0x100;
const DESCRIPTIONS: u64 = 0x800;

/// An object with functions of these bytes, one behind another, and then some bytes that are in none.
fn object(functions: &[&[u8]], behind: &[u8]) -> (Vec<u8>, Table) {
    let mut object = vec![0x90; 0x1000];
    // Length, no CIE, version 1, "zR", two alignments, the return address, how addresses are told.
    let common = [
        16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0, 0, 0,
    ];
    let (mut at, mut description) = (CODE, DESCRIPTIONS as usize);
    let mut put = |bytes: &[u8]| {
        object[description..description + bytes.len()].copy_from_slice(bytes);
        description += bytes.len();
        description
    };
    let mut end = put(&common);
    let mut code = vec![];
    for function in functions {
        let back = end as u32 + 4 - DESCRIPTIONS as u32;
        let near = at as i32 - (end as i32 + 8);
        let words = [16, back, near.cast_unsigned(), function.len() as u32, 0];
        end = put(&words.map(u32::to_le_bytes).concat());
        at += function.len() as u64;
        code.extend_from_slice(function);
    }
    end = put(&[0; 4]);
    code.extend_from_slice(behind);
    object[CODE as usize..][..code.len()].copy_from_slice(&code);
    (object, Table::Described(DESCRIPTIONS..end as u64))
}

fn found(functions: &[&[u8]], behind: &[u8]) -> Found {
    let (object, table) = object(functions, behind);
    let code = CODE..DESCRIPTIONS;
    find(&object, &[code], Some(&table), |_| true).expect("is sound")
}

fn only_site(function: &[u8]) -> Site {
    let found = found(&[function], &[]);
    assert_eq!(found.missed, []);
    assert_eq!(found.sites.len(), 1, "{found:x?}");
    found.sites[0].clone()
}

fn only_missed(found: Found) -> Missed {
    assert_eq!(found.sites, []);
    assert_eq!(found.missed.len(), 1, "{found:x?}");
    found.missed[0]
}

/// mov $257, %eax
const OPENAT: [u8; 5] = [0xb8, 1, 1, 0, 0];
const SYSCALL: [u8; 2] = [0x0f, 5];
const RET: u8 = 0xc3;

#[test]
fn an_instruction_before_others_is_replaced() {
    // openat; mov $-100, %edi; xor %r10d, %r10d; syscall; jmp to itself
    let site = only_site(
        &[
            &OPENAT[..],
            &[
                0xbf, 0x9c, 0xff, 0xff, 0xff, 0x45, 0x31, 0xd2, 0x0f, 5, 0xeb, 0xfe,
            ],
        ]
        .concat(),
    );
    assert_eq!(site.window, CODE + 5..CODE + 10);
    assert_eq!(site.before(), CODE + 5..CODE + 13);
    assert!(site.after().is_empty());
    assert_eq!((site.syscall, site.number), (CODE + 13, Number::Known(257)));
    assert!(site.keeps_syscall());
}

#[test]
fn flags_are_kept_where_somebody_asks() {
    let cases: [(&[u8], bool); 6] = [
        // cmp $-4096, %rax; ret
        (&[0x48, 0x3d, 0, 0xf0, 0xff, 0xff, RET], false),
        (&[RET], false),
        // jne; ret
        (&[0x75, 0, RET], true),
        // mov %rax, %rdx; sete %al; ret
        (&[0x48, 0x89, 0xc2, 0x0f, 0x94, 0xc0, RET], true),
        // inc %eax leaves the carry; adc $0, %eax asks for it; ret
        (&[0xff, 0xc0, 0x83, 0xd0, 0, RET], true),
        // test %eax, %eax; jne; ret
        (&[0x85, 0xc0, 0x75, 0, RET], false),
    ];
    for (behind, needs) in cases {
        let site = only_site(&[&OPENAT[..], &SYSCALL, behind].concat());
        assert_eq!(site.needs_flags, needs, "{behind:x?}");
    }
}

#[test]
fn what_nothing_leads_to_is_data() {
    // jmp over; the bytes; ret
    let data = |before: &[u8]| [before, &SYSCALL, &[0x90; 5], &[RET]].concat();
    let missed = only_missed(found(&[&data(&[0xeb, 7])], &[]));
    assert_eq!((missed.at, missed.why), (CODE + 2, Refused::Unreached));
    assert!(!missed.is_certain());
    // Something else leads there: call from another function, far and near.
    let far = [0xe8, 0xfd, 0xff, 0xff, 0xff, RET];
    let near = [0xeb, 0xf6, RET];
    assert_eq!(data(&[0xeb, 7]).len(), 10);
    for (other, back) in [(&far[..], 13i8), (&near[..], 10)] {
        let mut other = other.to_vec();
        other[1] = (-back).cast_unsigned();
        let found = found(&[&data(&[0xeb, 7]), &other], &[]);
        assert_eq!(found.missed, [], "{other:x?}");
        assert_eq!(found.sites[0].syscall, CODE + 2);
    }
    // In another instruction: mov $0x50f, %eax.
    let inside = found(&[&[0xb8, 0x0f, 5, 0, 0, RET]], &[]);
    assert!(
        inside.sites.is_empty() && inside.missed.is_empty(),
        "{inside:x?}"
    );
}

/// Where functions are not known, a number before it tells a call from data.
#[test]
fn what_lies_in_no_function_is_told_by_its_number() {
    let missed = only_missed(found(
        &[&[RET]],
        &[&OPENAT[..], &[0x48, 0x89, 0xf7], &SYSCALL].concat(),
    ));
    assert_eq!(
        (missed.number, missed.why),
        (Number::Known(257), Refused::Unknown)
    );
    assert!(missed.is_certain());
    // A number that is not used: behind a return.
    for behind in [&[RET][..], &[0xeb, 0], &[0x31]] {
        let missed = only_missed(found(&[&[RET]], &[&OPENAT[..], behind, &SYSCALL].concat()));
        assert_eq!(
            (missed.number, missed.is_certain()),
            (Number::Computed, false),
            "{behind:x?}"
        );
    }
}

/// syscall; jmp behind; and a jump to the syscall: nothing can be moved.
#[test]
fn a_call_without_room_is_certain_and_its_number_told() {
    let tight =
        |before: &[u8]| [before, &[0xeb, 2, 0xeb, 4], &SYSCALL, &[0xeb, 0xfa, RET]].concat();
    let missed = only_missed(found(&[&tight(&OPENAT)], &[]));
    assert_eq!((missed.at, missed.why), (CODE + 9, Refused::Immovable));
    assert_eq!(
        (missed.number, missed.is_certain()),
        (Number::Computed, true)
    );
    // mov $202, %r8d; mov %r8d, %eax; mov 0(%rip), %esi; syscall; jmp to the second
    let set = [0x41, 0xb8, 202, 0, 0, 0];
    let copied = [
        0x44, 0x89, 0xc0, 0x8b, 0x35, 0, 0, 0, 0, 0x0f, 5, 0xeb, 0xf3,
    ];
    let missed = only_missed(found(&[&[&set[..], &copied].concat()], &[]));
    assert_eq!(
        (missed.number, missed.is_certain()),
        (Number::Known(202), true)
    );
    // The caller has said which, at first.
    let callers = [&copied[..11], &[0xeb, 0], &set, &[0xeb, 0xeb]].concat();
    assert_eq!(
        only_missed(found(&[&callers], &[])).number,
        Number::Computed
    );
}

/// The end of one's window may be the beginning of the next one's.
#[test]
fn windows_do_not_overlap() {
    // syscall; mov $257, %eax; syscall; cmp $-4096, %rax; ret
    let code = [
        &SYSCALL[..],
        &OPENAT,
        &SYSCALL,
        &[0x48, 0x3d, 0, 0xf0, 0xff, 0xff, RET],
    ]
    .concat();
    let found = found(&[&code], &[]);
    let windows: Vec<_> = found.sites.iter().map(|site| site.window.clone()).collect();
    assert_eq!(windows, [CODE..CODE + 7, CODE + 7..CODE + 15], "{found:x?}");
}

/// What this machine has: none is taken for something else, and those with calls are seen.
#[test]
fn libraries_of_this_machine_are_told_apart() {
    let path = |name: &str| format!("/lib/x86_64-linux-gnu/{name}");
    let look = |path: &str| {
        let file = fs::read(path).ok()?;
        let elf = Elf::read(&file).expect("is sound");
        if !elf.texts().any(|text| may_call(elf.bytes_of(&text))) {
            return Some(Found::default());
        }
        let mut image = vec![0; elf.span().end as usize];
        for load in elf.loads() {
            let bytes = elf.bytes_of(&load);
            image[load.address as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let code: Vec<_> = elf.code().collect();
        let found = find(&image, &code, elf.functions().as_ref(), |_| true).expect("is sound");
        Some(found)
    };
    let futex = |one: &Missed| !one.is_certain() || matches!(one.number, Number::Known(158 | 202));
    for (name, sites) in [
        ("libc.so.6", true),
        ("libm.so.6", false),
        ("libstdc++.so.6", false),
        ("libcrypto.so.3", false),
        ("libz.so.1", false),
        ("libgomp.so.1", true),
        ("libasan.so.8", true),
        ("liburing.so.2", true),
    ] {
        let Some(found) = look(&path(name)) else {
            println!("{name} is not here");
            continue;
        };
        assert_eq!(!found.sites.is_empty(), sites, "{name}: {found:x?}");
        assert!(
            found.missed.iter().all(futex),
            "{name}: {:x?}",
            found.missed
        );
    }
}
