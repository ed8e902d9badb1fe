//! Which guests notice that something is not brought back: an image is restarted without some of its operations.
//!
//! ```text
//! guest -> image --without all that nobody has noticed yet--> restarted: it fails? -> the half of them, and so on
//! ```
//! `scripts/without` begins it for every guest. `WF_WITHOUT` is the file in which every kind of operation is noted that was noticed, by
//! whom, or that a guest did not notice.

use super::run;
use super::scenario::{Guest, Job, Mode, Restart, Variant, Verdict};
use super::skip;
use super::user::User;
use loader::call_names::CallName;
use loader::layout::{HEADER_LEN, HEADER_OFFSET, Header, SectionKind};
use loader::ops::tails::CallTail;
use loader::ops::{AnyOp, OpsHeader, OpsList, Record, StreamEntry};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A guest that has lost something may wait for ever.
const DEADLINE: Duration = Duration::from_secs(6);

/// Tries a guest without what nobody has noticed yet.
pub fn check(guest: &Guest, notes: &Path) {
    let user = if guest.only_root {
        User::Root
    } else {
        User::Ordinary
    };
    let variant = Variant {
        mode: Mode::KillRestart,
        user,
        threads: 0,
    };
    let guest = Guest {
        deadline: DEADLINE,
        ..guest.clone()
    };
    let mut trial = Trial {
        job: Job::new(&guest, variant, 1),
        image: vec![],
        notes,
        tries: 0,
    };
    let result = trial.all();
    let Trial { job, tries, .. } = &mut trial;
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    let _ = fs::remove_dir_all(&job.dir);
    match result {
        Ok(()) => println!("{}: {tries} restarts", guest.label),
        Err(why) => skip::note(&guest.label, &why),
    }
}

struct Trial<'a> {
    job: Job<'a>,
    image: Vec<u8>,
    notes: &'a Path,
    tries: u32,
}

impl Trial<'_> {
    fn all(&mut self) -> Result<(), String> {
        if let Verdict::Skipped(why) = self.job.start()? {
            return Err(why);
        }
        self.job.wait_random();
        let image = self.job.checkpoint("kill")?;
        self.job.wait_killed()?;
        self.image = fs::read(&image).map_err(|error| error.to_string())?;
        self.copy("data", "saved")?;
        // The same image more than once: else what follows says nothing.
        for _ in 0..2 {
            let whole = self.passes(&BTreeSet::new());
            whole.map_err(|why| format!("cannot be restarted more than once: {why}"))?;
        }
        let noticed = noted(self.notes);
        let mut labels = labels(&self.image);
        labels.retain(|label| !noticed.contains(label));
        self.halve(labels);
        Ok(())
    }

    /// Finds out which of these the guest notices, by halves.
    fn halve(&mut self, labels: BTreeSet<String>) {
        if labels.is_empty() {
            return;
        }
        let outcome = self.passes(&labels);
        match (outcome, labels.len()) {
            (Ok(()), _) => labels
                .iter()
                .for_each(|label| self.note("unnoticed", label, "")),
            (Err(why), 1) => labels
                .iter()
                .for_each(|label| self.note("noticed", label, &why)),
            (Err(_), count) => {
                let mut first = labels;
                let middle = first.iter().nth(count / 2).cloned().unwrap_or_default();
                let second = first.split_off(&middle);
                self.halve(first);
                self.halve(second);
            }
        }
    }

    fn note(&self, what: &str, label: &str, why: &str) {
        let why = why.lines().next().unwrap_or("");
        let line = format!("{what}\t{label}\t{}\t{why}\n", self.job.guest.label);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.notes);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("notes can be written");
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), String> {
        let (from, to) = (self.job.dir.join(from), self.job.dir.join(to));
        let _ = fs::remove_dir_all(&to);
        let status = Command::new("cp").arg("-a").args([&from, &to]).status();
        match status.map_err(|error| error.to_string())?.success() {
            true => Ok(()),
            false => Err("its files cannot be copied".into()),
        }
    }

    /// Whether the guest passes when it is restarted without these.
    fn passes(&mut self, without: &BTreeSet<String>) -> Result<(), String> {
        self.tries += 1;
        self.copy("saved", "data")?;
        let path = self.job.dir.join("without.img");
        let _ = fs::remove_file(&path);
        write_without(&self.image, without, &path);
        self.job.user().own(&path);
        self.job.restart(&path, Restart::Command)?;
        self.job.let_go();
        let passed = self.job.wait_pass();
        let said: String = self.job.runs.iter().map(|run| run.err.text()).collect();
        drop(std::mem::take(&mut self.job.runs));
        run::end_marked(&self.job.mark);
        match passed {
            Ok(Verdict::Passed) => Ok(()),
            Ok(Verdict::Skipped(why)) => Err(why),
            Err(why) => Err(format!("{} | {why}", said.replace('\n', " "))),
        }
    }
}

/// What has been noticed by now.
fn noted(notes: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(notes).unwrap_or_default();
    let noticed = text
        .lines()
        .filter_map(|line| line.strip_prefix("noticed\t"));
    let labels = noticed.filter_map(|rest| rest.split('\t').next());
    labels.map(str::to_owned).collect()
}

fn header(image: &[u8]) -> Header {
    Header::decode(&image[HEADER_OFFSET as usize..]).expect("a header")
}

fn operations(image: &[u8]) -> &[u8] {
    let header = header(image);
    let section = header.section(SectionKind::Ops);
    &image[section.offset as usize..(section.offset + section.used) as usize]
}

fn labels(image: &[u8]) -> BTreeSet<String> {
    let list = OpsList::read(operations(image)).expect("a list");
    let streams = (0..list.header().streams).filter_map(|index| list.stream(index));
    let records = streams.flat_map(|entry| list.records(&entry));
    records
        .filter_map(|record| label(&record.expect("sound")))
        .collect()
}

/// What kind of thing an operation brings back; none for those without which nothing at all can go on.
fn label(record: &Record<'_>) -> Option<String> {
    match record.op {
        AnyOp::Call(op) => {
            let tail = CallTail::read(&op, record.tail).expect("fits");
            let text = without_numbers(&tail.label.to_string_lossy());
            Some(format!("{}: {text}", CallName(op.nr)))
        }
        AnyOp::UnmapAll(_) | AnyOp::Fill(_) | AnyOp::SpawnThreads(_) | AnyOp::Registers(_) => None,
        op => Some(op.name().to_owned()),
    }
}

/// One label for all of a kind.
fn without_numbers(label: &str) -> String {
    let label = label.split(" (expected").next().unwrap_or(label);
    let is_address = |word: &str| {
        let mut chars = word.chars();
        word.len() >= 6 && chars.all(|c| c.is_ascii_hexdigit() || c == '-')
    };
    let words = label.split(' ').map(|word| match word {
        _ if word.contains('/') => "PATH".to_owned(),
        _ if word.starts_with("0x") || is_address(word) => "N".to_owned(),
        word => {
            let parts = word.split(|c: char| c.is_ascii_digit());
            let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
            match word.chars().any(|c| c.is_ascii_digit()) {
                true => parts.join("") + "N",
                false => word.to_owned(),
            }
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The image, with these operations left out and all checksums right.
fn write_without(image: &[u8], without: &BTreeSet<String>, path: &PathBuf) {
    let old = operations(image);
    let list = OpsList::read(old).expect("a list");
    let head = OpsHeader::BYTES + list.header().streams as usize * StreamEntry::BYTES;
    let mut records = vec![];
    let mut entries = vec![];
    for index in 0..list.header().streams {
        let entry = list.stream(index).expect("there");
        let begin = records.len();
        let end = (entry.offset + entry.len) as usize;
        let all: Vec<_> = list
            .records(&entry)
            .map(|record| record.expect("sound"))
            .collect();
        for (number, record) in all.iter().enumerate() {
            let next = all.get(number + 1).map_or(end, |next| next.offset);
            if label(record).is_none_or(|label| !without.contains(&label)) {
                records.extend_from_slice(&old[record.offset..next]);
            }
        }
        let (offset, len) = ((head + begin) as u64, (records.len() - begin) as u64);
        StreamEntry {
            offset,
            len,
            ..entry
        }
        .encode(|field| entries.extend_from_slice(field));
    }
    let ops = [&old[..OpsHeader::BYTES], &entries, &records].concat();
    let mut image = image.to_vec();
    let mut header = header(&image);
    let section = &mut header.sections[SectionKind::Ops as usize - 1];
    let place = section.offset as usize..(section.offset + section.len) as usize;
    image[place.clone()].fill(0);
    image[place.start..place.start + ops.len()].copy_from_slice(&ops);
    section.used = ops.len() as u64;
    section.hash = *blake3::hash(&image[place]).as_bytes();
    let at = HEADER_OFFSET as usize;
    image[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    fs::write(path, image).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(path, mode).expect("permissions");
}
