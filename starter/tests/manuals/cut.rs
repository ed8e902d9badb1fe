//! Cutting policies out of the manuals.

use std::path::PathBuf;

/// The text of a manual.
pub(crate) struct Manual {
    text: String,
    name: &'static str,
}

/// What is misprinted in the manuals: where, what, and what it should be. Each has to be there.
pub(crate) const CORRECTIONS: &[(&str, &str, &str)] = &[
    (
        "condor-6.8-startd-policy.txt",
        "MachineBusy             = ($(CPUBusy) || $(KeyboardBusy)\n",
        "MachineBusy             = ($(CPUBusy) || $(KeyboardBusy))\n",
    ),
    (
        "htcondor-current-policy.txt",
        "MachineBusy = ($(CPUBusy) || $(KeyboardBusy) Preemption",
        "MachineBusy = ($(CPUBusy) || $(KeyboardBusy)) Preemption",
    ),
    (
        "htcondor-current-policy.txt",
        "eval(strcat(\"slot\",SlotID-$(DETECTED_CORES),\"_State\")\n",
        "eval(strcat(\"slot\",SlotID-$(DETECTED_CORES),\"_State\"))\n",
    ),
];

/// A manual, if it is there.
pub(crate) fn manual(name: &'static str) -> Option<Manual> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = match std::env::var_os("WAYFARER_MANUAL") {
        Some(folder) => PathBuf::from(folder),
        None => root.join("../shared/manual"),
    };
    let path = folder.join(name);
    let Ok(mut text) = std::fs::read_to_string(&path) else {
        let reason = format!("{name} is not in WAYFARER_MANUAL, nor in ../shared/manual");
        crate::skip::note("the policies of a manual", &reason);
        return None;
    };
    for (manual, misprint, correction) in
        CORRECTIONS.iter().filter(|(manual, _, _)| *manual == name)
    {
        assert!(
            text.contains(misprint),
            "{manual}: {misprint:?} is not there any more"
        );
        text = text.replace(misprint, correction);
    }
    Some(Manual { text, name })
}

impl Manual {
    /// What stands in a section from one text to another, without the latter.
    pub(crate) fn cut(&self, section: &str, from: &str, until: &str) -> String {
        let find = |text: &str, at: usize| {
            let found = self.text[at..].find(text);
            let found =
                found.unwrap_or_else(|| panic!("{}: no {text:?} in {section:?}", self.name));
            at + found
        };
        let section_at = find(section, 0);
        let begin = find(from, section_at);
        let end = find(until, begin + from.len());
        self.text[begin..end].to_owned() + "\n"
    }
}

#[test]
fn the_list_of_corrections_is_short() {
    assert!(CORRECTIONS.len() <= 10);
}
