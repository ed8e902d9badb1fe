//! Cuts an image into what the fuzz targets begin with.
//!
//!     seeds IMAGE CORPUS

use ckpt_lib::image::Image;
use loader::layout::{Encoding, SectionKind};
use std::fs;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, corpus] = arguments.as_slice() else {
        panic!("seeds IMAGE CORPUS");
    };
    let bytes = fs::read(image).expect("an image");
    let opened = Image::open(Path::new(image)).expect("an image");
    let header = opened.header();
    let section = |kind: SectionKind| {
        let mut sections = header.sections.iter();
        let found = sections.find(|section| section.kind == kind as u32);
        let found = found.expect("every image has all");
        &bytes[found.offset as usize..][..found.used as usize]
    };
    let name = Path::new(image).file_name().expect("a name");
    let put = |target: &str, seed: &[u8]| {
        let folder = Path::new(corpus).join(target);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), seed).expect("writes");
    };
    let (ops, extents) = (section(SectionKind::Ops), section(SectionKind::Extents));
    put("header", &header.encode());
    put("platform", section(SectionKind::Platform));
    put("ops", ops);
    put("meta", section(SectionKind::Meta));
    put("extents", extents);
    let page = section(SectionKind::Elf);
    put("elf", &[page, section(SectionKind::Loader)].concat());
    let loader = section(SectionKind::Loader).len() as u64;
    let numbers = [header.hole_base, header.hole_len, loader, ops.len() as u64];
    let numbers = numbers.map(u64::to_le_bytes).concat();
    put("meaning", &[&numbers, ops, extents].concat());
    let tables = opened.tables();
    let packed = tables
        .extents()
        .map(|extent| extent.expect("reads"))
        .find(|extent| extent.encoding == Encoding::Zstd as u32 && extent.image == 0);
    if let Some(extent) = packed {
        let chunk = tables.chunk(extent.first_chunk).expect("reads");
        let chunk = chunk.expect("checked");
        let stored = &bytes[chunk.offset as usize..][..chunk.stored_len as usize];
        put("chunk", &[&[0; 6], stored].concat());
    }
}
