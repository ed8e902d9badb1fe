//! Names and what they stand for, as written.

use super::origin::Origin;
use std::collections::BTreeMap;

/// A name with its value, before macros are expanded.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The name as it was written first.
    pub(super) name: String,
    pub(super) raw: String,
    pub(super) origin: Origin,
}

/// Values that files have set, above those that are built in.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    set: BTreeMap<String, Entry>,
    built_in: BTreeMap<String, Entry>,
    /// What may stand before a name and a dot, small letters, the strongest first.
    prefixes: Vec<String>,
    /// The bytes of all names and values that were ever kept.
    bytes: usize,
}

/// A name without its case.
pub(super) fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

impl Table {
    pub(super) fn new(prefixes: Vec<String>) -> Self {
        Self {
            prefixes,
            ..Self::default()
        }
    }

    /// What a name stands for: with a prefix first, then as set, then as built in.
    pub(super) fn lookup(&self, name: &str) -> Option<&Entry> {
        self.resolve(name).map(|(_, entry)| entry)
    }

    /// The same, and the key under which it was found.
    pub(super) fn resolve(&self, name: &str) -> Option<(String, &Entry)> {
        let key = key(name);
        let prefixed = self.prefixes.iter().find_map(|prefix| {
            let key = format!("{prefix}.{key}");
            self.set.get(&key).map(|entry| (key, entry))
        });
        prefixed.or_else(|| self.exact(&key).map(|entry| (key, entry)))
    }

    /// What a key stands for, whatever may stand before it.
    pub(super) fn exact(&self, key: &str) -> Option<&Entry> {
        self.set.get(key).or_else(|| self.built_in.get(key))
    }

    /// What is built in under a key.
    pub(super) fn built_in(&self, key: &str) -> Option<&Entry> {
        self.built_in.get(key)
    }

    /// The part of a name behind one of the prefixes.
    pub(super) fn without_prefix<'n>(&self, name: &'n str) -> Option<&'n str> {
        self.prefixes.iter().find_map(|prefix| {
            let (head, rest) = name.split_at_checked(prefix.len())?;
            let rest = rest.strip_prefix('.')?;
            (head.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
        })
    }

    pub(super) fn set(&mut self, name: &str, raw: String, origin: Origin) {
        self.bytes = self.bytes.saturating_add(name.len() + raw.len());
        let key = key(name);
        if let Some(entry) = self.set.get_mut(&key) {
            (entry.raw, entry.origin) = (raw, origin);
            return;
        }
        let known = self.built_in.get(&key);
        let name = known.map_or_else(|| name.to_owned(), |entry| entry.name.clone());
        self.set.insert(key, Entry { name, raw, origin });
    }

    /// A key stands for nothing any more, but for what is built in.
    pub(super) fn forget(&mut self, key: &str) {
        self.set.remove(key);
    }

    /// Everything that was set until now becomes built in.
    pub(super) fn build_in(&mut self) {
        self.built_in.append(&mut self.set);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries; `true`: built in.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Entry, bool)> {
        let set = self.set.iter().map(|(key, entry)| (key, entry, false));
        let built_in = (self.built_in.iter()).filter(|(key, _)| !self.set.contains_key(*key));
        set.chain(built_in.map(|(key, entry)| (key, entry, true)))
    }
}
