//! Storing memory into an image and reading it back, without a job around it.
#![allow(missing_docs, clippy::expect_used)]

use ckpt_lib::image::{Bytes, Image, ImageParts, ImageWriter, WriteOptions};
use ckpt_lib::loader_code;
use ckpt_lib::plan::OpsBuilder;
use ckpt_lib::snapshot::SnapshotV1;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loader::layout::Space;
use loader::ops::OpsHeader;
use std::path::Path;

const BASE: u64 = 0x2000_0000_0000;
const MIB: u64 = 1 << 20;

/// One page random, one page that compresses, and so on.
fn memory(len: u64) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252u64;
    let words = (0..len / 8).flat_map(|index| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let word = if index / 512 % 2 == 0 { index / 512 } else { x };
        word.to_le_bytes()
    });
    words.collect()
}

fn write(path: &Path, memory: &Vec<u8>, compression: Option<i32>) {
    let options = WriteOptions {
        compression,
        overwrite: true,
        ..WriteOptions::default()
    };
    let mut writer = ImageWriter::create(path, options).expect("created");
    let whole = 0..memory.len() as u64;
    writer
        .store(Space::Process(0), &[whole], memory, &|_| ())
        .expect("stored");
    let ops = OpsBuilder::new(OpsHeader::default()).finish();
    let ops = ops.expect("finished");
    let meta = Image::encode_snapshot(&SnapshotV1::default()).expect("encoded");
    let parts = ImageParts {
        platform: "LINUX X86_64 v1 xsave=0x3 page=4096 va=47",
        ops: Bytes::from(&ops),
        meta: Bytes::from(&meta[..]),
        loader: &loader_code::link(BASE).expect("linked"),
        hole: BASE..BASE + MIB,
    };
    writer.commit(&parts).expect("committed");
}

fn images(criterion: &mut Criterion) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("directory");
    let path = directory.path().join("bench.img");
    let memory = memory(64 * MIB);
    let mut group = criterion.benchmark_group("image of 64 MiB");
    group.throughput(Throughput::Bytes(memory.len() as u64));
    group.sample_size(10);
    group.bench_function("write", |b| b.iter(|| write(&path, &memory, None)));
    group.bench_function("write, zstd 1", |b| {
        b.iter(|| write(&path, &memory, Some(1)))
    });
    write(&path, &memory, None);
    group.bench_function("open and verify", |b| {
        b.iter(|| {
            Image::open(&path)
                .expect("opens")
                .verify(&mut |_| ())
                .expect("sound")
        });
    });
    group.finish();
}

criterion_group!(benches, images);
criterion_main!(benches);
