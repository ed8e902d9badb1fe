//! A machine that says what a test wants it to.

use super::source::{Document, LocalTime, Source, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Default)]
pub(super) struct Fake {
    pub(super) now: Cell<i64>,
    pub(super) documents: HashMap<Document, Vec<u8>>,
    pub(super) processes: HashMap<i32, Vec<u8>>,
    /// When devices and stamps were used.
    pub(super) used: HashMap<PathBuf, i64>,
    pub(super) terminals: Vec<PathBuf>,
    pub(super) had_input: Option<bool>,
    pub(super) memory_limit: Option<u64>,
    pub(super) disk_kib: Option<u64>,
}

impl Fake {
    /// With what every machine has.
    pub(super) fn machine() -> Self {
        let mut fake = Fake::default();
        fake.say(Document::LoadAverage, b"2.214 1.37 0.59 5/104 11086\n");
        let memory = b"MemTotal: 8388608 kB\nSwapFree: 1048576 kB\n";
        fake.say(Document::Memory, memory);
        let processors = b"processor : 0\ncpu family : 25\nmodel : 1\ncache size : 512 KB\n\
            flags : ssse3 avx2 sse4_1\ncore id : 0\n\nprocessor : 1\ncore id : 0\n";
        fake.say(Document::Processors, processors);
        fake.say(Document::Issue, b"Debian GNU/Linux 12 \\n \\l\n");
        let hosts = b"10.0.0.7 vulture.cs.wisc.edu vulture\n";
        fake.say(Document::Hosts, hosts);
        fake.say(Document::Logins, b"");
        fake.disk_kib = Some(1_345_063);
        fake.now.set(1_000_000);
        fake
    }

    pub(super) fn say(&mut self, document: Document, text: &[u8]) {
        self.documents.insert(document, text.to_vec());
    }

    pub(super) fn use_at(&mut self, device: &str, at: i64) {
        self.used.insert(device.into(), at);
    }
}

impl Source for Fake {
    fn read(&self, document: Document) -> io::Result<Vec<u8>> {
        let found = self.documents.get(&document).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn process(&self, pid: i32) -> io::Result<Vec<u8>> {
        let found = self.processes.get(&pid).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn now(&self) -> i64 {
        self.now.get()
    }

    fn local_time(&self, _at: i64) -> LocalTime {
        LocalTime { day: 6, minute: 61 }
    }

    fn system(&self) -> System {
        System {
            sysname: "Linux".to_owned(),
            nodename: "vulture".to_owned(),
            release: "6.18.44".to_owned(),
            version: "#1 SMP".to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    fn terminals(&self) -> Vec<PathBuf> {
        self.terminals.clone()
    }

    fn used_at(&self, device: &Path) -> Option<i64> {
        self.used.get(device).copied()
    }

    fn touched_at(&self, file: &Path) -> Option<i64> {
        self.used.get(file).copied()
    }

    fn had_input(&self) -> Option<bool> {
        self.had_input
    }

    fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    fn free_disk_kib(&self, _folder: &Path) -> io::Result<u64> {
        self.disk_kib.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
