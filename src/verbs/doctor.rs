//! `wayfarer doctor`.

use crate::args::Doctor;
use crate::jobs::JobStore;
use crate::output;
use crate::report::{Exit, Outcome};
use ckpt_lib::host::{Fact, Host, Severity, Verdict};
use serde::Serialize;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    /// Jobs can be checkpointed and restarted here.
    usable: bool,
    /// What it costs jobs to have namespaces of their own.
    namespaces_cost: &'static str,
    facts: Vec<Fact>,
    host: Host,
}

/// Tries what this machine can do, and says it; status 3 if checkpoints cannot work at all.
pub(crate) fn doctor(store: &JobStore, arguments: &Doctor) -> Outcome {
    let host = Host::probe(store.dir());
    let facts = host.facts();
    let usable = !facts.iter().any(is_fatal);
    let exit = if usable { Exit::Done } else { Exit::Host };
    if arguments.json {
        let report = Report {
            usable,
            namespaces_cost: namespaces_cost(&facts),
            facts,
            host,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        output::print(&render(&facts, usable))?;
    }
    Ok(exit)
}

fn is_fatal(fact: &Fact) -> bool {
    fact.verdict == Verdict::Absent && fact.severity == Severity::Fatal
}

/// What jobs see of having ids of their own; nothing where they have not.
fn namespaces_cost(facts: &[Fact]) -> &'static str {
    let has = |fact: &Fact| fact.name == "user_namespace" && fact.verdict == Verdict::Good;
    if facts.iter().any(has) {
        "supplementary groups and files of other owners show as 65534, and setuid programs (sudo, ping) gain nothing"
    } else {
        ""
    }
}

/// What is missing first and by its weight, then what is there.
fn render(facts: &[Fact], usable: bool) -> String {
    let verdict = if usable {
        "Jobs can be checkpointed and restarted on this machine."
    } else {
        "Jobs cannot be checkpointed and restarted on this machine."
    };
    let mut text = format!("{verdict}\n");
    let groups = [
        (Severity::Fatal, "What makes it impossible:"),
        (Severity::Lossy, "What is lost or must be asked for:"),
        (Severity::Slower, "What is done another way, more slowly:"),
        (Severity::Special, "What only some jobs need:"),
        (Severity::Note, "Also absent, at no cost:"),
    ];
    let unknown =
        |fact: &Fact| fact.verdict == Verdict::Unknown && fact.severity == Severity::Fatal;
    let untold: Vec<&Fact> = facts.iter().filter(|fact| unknown(fact)).collect();
    if !untold.is_empty() {
        text.push_str("\nWhat could not be found out, and would make it impossible:\n");
    }
    for fact in untold {
        text.push_str(&format!(
            "  {}: {}\n      {}\n",
            fact.title, fact.found, fact.cost
        ));
    }
    for (severity, title) in groups {
        let wanting = |fact: &&Fact| {
            fact.verdict != Verdict::Good && fact.severity == severity && !unknown(fact)
        };
        let mut found = facts.iter().filter(wanting).peekable();
        if found.peek().is_some() {
            text.push_str(&format!("\n{title}\n"));
        }
        for fact in found {
            text.push_str(&format!("  {}: {}\n", fact.title, fact.found));
            if !fact.cost.is_empty() {
                text.push_str(&format!("      {}\n", fact.cost));
            }
        }
    }
    let cost = namespaces_cost(facts);
    if !cost.is_empty() {
        text.push_str(&format!(
            "\nWhat it costs jobs to have ids of their own (not with --pids host):\n  {cost}\n"
        ));
    }
    let mut good = facts
        .iter()
        .filter(|fact| fact.verdict == Verdict::Good)
        .peekable();
    if good.peek().is_some() {
        text.push_str("\nWhat is there:\n");
    }
    for fact in good {
        text.push_str(&format!("  {}: {}\n", fact.title, fact.found));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(title: &str, verdict: Verdict, severity: Severity) -> Fact {
        Fact {
            name: title.to_owned(),
            title: title.to_owned(),
            verdict,
            found: "found".to_owned(),
            cost: format!("cost of {title}"),
            severity,
        }
    }

    #[test]
    fn what_is_absent_comes_first_and_with_its_cost() {
        let facts = [
            fact("there", Verdict::Good, Severity::Fatal),
            fact("slow", Verdict::Absent, Severity::Slower),
            fact("gone", Verdict::Absent, Severity::Lossy),
        ];
        let untold = fact("untold", Verdict::Unknown, Severity::Fatal);
        let said = render(&[untold], true);
        assert!(said.contains("could not be found out") && said.contains("cost of untold"));
        assert!(!said.contains("What makes it impossible"), "{said}");
        let text = render(&facts, true);
        let at = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("no {what} in {text}"))
        };
        assert!(at("cost of gone") < at("slow: found"), "{text}");
        assert!(at("slow: found") < at("there: found"), "{text}");
        assert!(!text.contains("cost of there"), "{text}");
        assert!(!text.contains("65534"), "{text}");
        let with = [fact("user_namespace", Verdict::Good, Severity::Lossy)];
        assert!(render(&with, true).contains("show as 65534"));
    }
}
