//! `wayfarer inspect IMAGE`.

use crate::args::Inspect;
use crate::output::{self, Table, bytes};
use crate::raw;
use crate::report::{Exit, Outcome};
use crate::summary::{self, FileSummary, ProcessSummary};
use crate::verbs::{image_failure, open_image};
use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::snapshot::{SnapshotV1, Taken};
use loader::layout::{Extent, Space};
use serde::Serialize;
use std::ops::Range;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    #[serde(with = "raw::path")]
    image: PathBuf,
    id: String,
    format_version: u32,
    image_bytes: u64,
    platform: String,
    /// Why a lesser processor that was asked for is not proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_enforced: Option<String>,
    taken: Taken,
    uid: u32,
    gid: u32,
    sections: Vec<SectionLine>,
    contents: Contents,
    processes: Vec<ProcessSummary>,
    files: Vec<FileSummary>,
}

#[derive(Serialize)]
struct SectionLine {
    name: &'static str,
    offset: u64,
    bytes: u64,
}

/// What memory and files take.
#[derive(Debug, Default, Serialize)]
struct Contents {
    memory_bytes: u64,
    file_bytes: u64,
    /// In this file, compressed or not.
    stored_bytes: u64,
    /// In the images it builds on.
    stored_in_bases_bytes: u64,
    bases: Vec<String>,
}

/// Prints what the image holds.
pub(crate) fn inspect(arguments: &Inspect) -> Outcome {
    let image = open_image(&arguments.image)?;
    let snapshot = image.snapshot();
    let snapshot = snapshot.map_err(|error| image_failure(&arguments.image, error))?;
    let report = report(&image, &snapshot);
    let report = report.map_err(|error| image_failure(&arguments.image, error))?;
    if arguments.json {
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        output::print(&render(&report))?;
    }
    Ok(Exit::Done)
}

fn report(image: &Image, snapshot: &SnapshotV1) -> Result<Report, ImageError> {
    let header = image.header();
    let section = |kind: loader::layout::SectionKind| {
        let section = header.section(kind);
        SectionLine {
            name: kind.name(),
            offset: section.offset,
            bytes: section.len,
        }
    };
    let processes = summary::processes(snapshot, &|space, place| stored(image, space, place))?;
    Ok(Report {
        image: image.path().to_owned(),
        id: header.id.iter().map(|byte| format!("{byte:02x}")).collect(),
        format_version: header.version,
        image_bytes: header.image_len,
        platform: image.platform().to_owned(),
        not_enforced: Some(snapshot.enforcement.missing.clone()).filter(|why| !why.is_empty()),
        taken: snapshot.taken.clone(),
        uid: snapshot.identity.uid,
        gid: snapshot.identity.gid,
        sections: loader::layout::SectionKind::ALL.map(section).into(),
        contents: contents(image)?,
        processes,
        files: summary::files(snapshot),
    })
}

/// Bytes of a place that have contents.
fn stored(image: &Image, space: Space, place: Range<u64>) -> Result<u64, ImageError> {
    let mut bytes = 0;
    for extent in image.tables().extents_within(space, place.start, place.end) {
        bytes += overlap(&extent?, &place);
    }
    Ok(bytes)
}

/// Bytes of an extent that lie in a place.
fn overlap(extent: &Extent, place: &Range<u64>) -> u64 {
    let end = extent.at.saturating_add(extent.len).min(place.end);
    end.saturating_sub(extent.at.max(place.start))
}

/// Sums up the extents.
fn contents(image: &Image) -> Result<Contents, ImageError> {
    let tables = image.tables();
    let mut contents = Contents::default();
    let mut chunks = tables.chunks();
    for extent in tables.extents() {
        let extent = extent?;
        match Space::from_number(extent.space) {
            Some(Space::Process(_)) => contents.memory_bytes += extent.len,
            _ => contents.file_bytes += extent.len,
        }
        let stored = match extent.image {
            0 => &mut contents.stored_bytes,
            _ => &mut contents.stored_in_bases_bytes,
        };
        for number in extent.first_chunk..extent.first_chunk + extent.chunk_count() {
            let chunk = chunks.get(number)?;
            *stored += chunk.map_or(0, |chunk| u64::from(chunk.stored_len));
        }
    }
    let bases = (0..).map_while(|index| image.base_path(index));
    contents.bases = bases.map(raw::encode).collect();
    Ok(contents)
}

fn render(report: &Report) -> String {
    let taken = &report.taken;
    let contents = &report.contents;
    let mut head = Table::default();
    let mut line = |key: &str, value: String| head.push(vec![key.to_owned(), value]);
    line(
        "image",
        format!(
            "{} ({})",
            raw::encode(&report.image),
            bytes(report.image_bytes)
        ),
    );
    line("id", report.id.clone());
    line(
        "checkpoint",
        format!("{}, {}", taken.generation, output::ago(taken.unix_seconds)),
    );
    line(
        "taken on",
        format!("{} (Linux {})", taken.host, taken.kernel),
    );
    line(
        "by",
        format!(
            "wayfarer {}, format {}",
            taken.wayfarer, report.format_version
        ),
    );
    line("needs", report.platform.clone());
    if let Some(why) = &report.not_enforced {
        line("baseline", format!("not enforced: {why}"));
    }
    line("user", format!("{}, group {}", report.uid, report.gid));
    let memory = bytes(contents.memory_bytes);
    line(
        "contents",
        format!("memory {memory}, files {}", bytes(contents.file_bytes)),
    );
    let in_bases = bytes(contents.stored_in_bases_bytes);
    line(
        "stored",
        format!("{} here, {in_bases} in bases", bytes(contents.stored_bytes)),
    );
    for base in &contents.bases {
        line("base", base.clone());
    }
    let mut text = head.render();
    for process in &report.processes {
        text.push('\n');
        text.push_str(&render_process(process));
    }
    let mut files = Table::new(&["FILE", "SIZE", "KIND", "CARRIED", "WRITTEN", "COMPARED"]);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for file in &report.files {
        let size = bytes(file.bytes);
        let kind = file.kind.to_owned();
        files.push(vec![
            file.path.clone(),
            size,
            kind,
            yes(file.carried),
            match file.not_rolled_back {
                true => "yes, not rolled back".to_owned(),
                false => yes(file.written),
            },
            file.compared.to_owned(),
        ]);
    }
    if !report.files.is_empty() {
        text.push('\n');
        text.push_str(&files.render());
    }
    text
}

fn render_process(process: &ProcessSummary) -> String {
    let program = process.program.as_deref().unwrap_or("unknown program");
    let (program, cwd) = (raw::shown(program), raw::shown(&process.cwd));
    let mut text = format!("process {} {program}, in {cwd}\n", process.pid);
    let mut threads = Table::new(&["  THREAD", "NAME", "AT", "IN CALL"]);
    if let Some(name) = &process.ended_first_thread {
        let ended = "has ended".to_owned();
        threads.push(vec![
            format!("  {}", process.pid),
            name.clone(),
            ended,
            String::new(),
        ]);
    }
    for thread in &process.threads {
        let left = match thread.in_call_left_ns {
            Some(ns) => format!(", {} ms left", ns / 1_000_000),
            None => String::new(),
        };
        let call = thread.in_call.as_ref().map(|call| format!("{call}{left}"));
        threads.push(vec![
            format!("  {}", thread.tid),
            thread.name.clone(),
            format!("{:#x}", thread.instruction_pointer),
            call.unwrap_or_default(),
        ]);
    }
    text.push_str(&threads.render());
    let mut memory = Table::new(&["  MEMORY", "MAPPINGS", "MAPPED", "CONTENTS"]);
    for kind in &process.memory {
        memory.push(vec![
            format!("  {}", kind.kind),
            kind.mappings.to_string(),
            bytes(kind.mapped_bytes),
            bytes(kind.stored_bytes),
        ]);
    }
    text.push_str(&memory.render());
    let mut descriptors = Table::new(&["  FD", "KIND", "ACCESS", "OFFSET", "WHAT"]);
    for descriptor in &process.descriptors {
        let offset = descriptor.offset.map(|offset| offset.to_string());
        descriptors.push(vec![
            format!("  {}", descriptor.fd),
            descriptor.kind.to_owned(),
            descriptor.access.to_owned(),
            offset.unwrap_or_default(),
            descriptor.what.clone(),
        ]);
    }
    text.push_str(&descriptors.render());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_an_extent_lies_in_a_place_is_counted() {
        let extent = Extent {
            at: 0x3000,
            len: 0x4000,
            ..Extent::default()
        };
        let within = |start: u64, end: u64| overlap(&extent, &(start..end));
        assert_eq!(within(0x1000, 0x9000), 0x4000);
        assert_eq!(within(0x1000, 0x4000), 0x1000);
        assert_eq!(within(0x6000, 0x9000), 0x1000);
        assert_eq!(within(0x4000, 0x5000), 0x1000);
        assert_eq!((within(0x1000, 0x3000), within(0x7000, 0x8000)), (0, 0));
    }
}
