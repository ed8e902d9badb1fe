//! The operation list, and what each operation has behind its fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::ops::tails::{self, CallTail, ExecTail, InodeTail, SendTail, SigEvent, VdsoTail};
use loader::ops::{AnyOp, OpsList, Record};
use std::hint::black_box;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = OpsList::read(bytes) else {
        return;
    };
    for index in 0..list.header().streams {
        let entry = list.stream(index).expect("checked");
        for record in list.records(&entry) {
            let record = record.expect("checked");
            assert!(record.offset + record.tail.len() <= bytes.len());
            read(&record);
        }
    }
});

/// As the loader does when it is the record's turn: all that is believed can be read, and lies in the tail.
fn read(record: &Record<'_>) {
    const BELIEVED: &str = "believed";
    let tail = record.tail;
    let inside = |part: &[u8]| {
        let (tail, part) = (tail.as_ptr_range(), part.as_ptr_range());
        assert!(part.is_empty() || tail.start <= part.start && part.end <= tail.end);
    };
    match record.op {
        AnyOp::Call(op) => {
            let found = CallTail::read(&op, tail).expect(BELIEVED);
            inside(found.label.to_bytes_with_nul());
            let args = [op.a0, op.a1, op.a2, op.a3, op.a4, op.a5];
            for (index, argument) in args.into_iter().enumerate() {
                let pointed = found.pointed(argument);
                inside(pointed.unwrap_or(&[]));
                assert!(op.pointers & 1 << index == 0 || pointed.is_some());
            }
            black_box(found.owner(&op));
        }
        AnyOp::Inode(op) => inside(InodeTail::read(&op, tail).expect(BELIEVED).path.to_bytes()),
        AnyOp::Open(_)
        | AnyOp::Inherit(_)
        | AnyOp::Watch(_)
        | AnyOp::CutBack(_)
        | AnyOp::Device(_)
        | AnyOp::Refill(_) => inside(tails::text(tail).expect(BELIEVED).to_bytes()),
        AnyOp::Send(op) => {
            let found = SendTail::read(&op, tail).expect(BELIEVED);
            assert_eq!(found.slots().count() as u64, op.fds);
            inside(found.socket.to_bytes_with_nul());
        }
        AnyOp::Vdso(op) => {
            let found = VdsoTail::read(&op, tail).expect(BELIEVED);
            assert_eq!(found.pieces().count() as u64, op.pieces);
            assert_eq!(found.symbols.iter().count() as u64, op.symbols);
            if let Some(place) = found.place(op.refuge) {
                assert!(place.data.start <= place.data.end && place.data.end == place.text.start);
                assert!(place.text.end - place.text.start <= op.refuge);
            }
            black_box(found.symbols.has_inside(op.fingerprint));
        }
        AnyOp::MmMap(_) => inside(tails::auxiliary_vector(tail)),
        AnyOp::TimerCreate(op) => {
            black_box(SigEvent::read(&op, tail).expect(BELIEVED).thread());
        }
        AnyOp::Registers(op) => {
            let found = tails::registers(tail).expect(BELIEVED);
            black_box(found.half_word(op.r15 as usize));
            let mut machine = vec![0; 832];
            machine[464..472].copy_from_slice(&op.r14.to_le_bytes());
            let lacks = found.in_use() & !op.r13 & !op.r14;
            assert_eq!(found.put_over(&mut machine, op.r13).is_err(), lacks != 0);
        }
        AnyOp::Exec(op) => {
            let found = ExecTail::read(&op, tail).expect(BELIEVED);
            let count = [found.args().count(), found.envs().count()];
            assert_eq!(count.map(|count| count as u64), [op.args, op.envs]);
            assert_eq!(found.limits().count() as u64, op.limits);
            found
                .args()
                .chain(found.envs())
                .for_each(|string| inside(string.to_bytes_with_nul()));
        }
        AnyOp::Terminal(_) => inside(tails::settings(tail).expect(BELIEVED)),
        AnyOp::Enforce(op) => inside(tails::handler(&op, tail).expect(BELIEVED)),
        AnyOp::FillInode(_)
        | AnyOp::UnmapAll(_)
        | AnyOp::Fill(_)
        | AnyOp::SpawnThreads(_)
        | AnyOp::InProgress(_)
        | AnyOp::Stopped(_)
        | AnyOp::Ended(_)
        | AnyOp::Feed(_)
        | AnyOp::Pipe(_)
        | AnyOp::SocketPair(_)
        | AnyOp::OwnId(_)
        | AnyOp::Fired(_) => {}
    }
}
