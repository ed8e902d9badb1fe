//! Transforms and requirements, on jobs.

use super::Verdict;
use crate::config::{Config, ConfigOptions};
use crate::{ClassAd, Nowhere, parse_old_ad};
use proptest::prelude::*;

fn config(text: &str) -> Config {
    Config::parse(text, &Nowhere, &ConfigOptions::default()).expect("a configuration")
}

/// A job after one transform with these lines.
fn after(lines: &str, job: &str) -> Result<ClassAd, String> {
    let text = format!("JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T @=end\n{lines}\n@end\n");
    let config = config(&text);
    let policy = config.submit_policy().expect("a policy");
    let job = parse_old_ad(job).expect("a job");
    let done = policy.transform(&job, &Nowhere);
    done.map(|done| done.ad).map_err(|error| error.to_string())
}

fn is(ad: &ClassAd, expected: &str) -> bool {
    ad.to_string() == parse_old_ad(expected).expect("an ad").to_string()
}

#[test]
fn every_command_does_what_the_manual_says() {
    for (lines, job, expected) in [
        ("SET A 1 + B", "B = 2", "B = 2\nA = 1 + B"),
        ("set A = 1", "A = 2", "A = 1"),
        (
            "DEFAULT A 1\nDEFAULT B 1\nDEFAULT C 1",
            "A = 2\nB = undefined",
            "A = 2\nB = 1\nC = 1",
        ),
        ("EVALSET A B * 2", "B = 2", "B = 2\nA = 4"),
        ("EVALSET A Nope", "B = 2", "B = 2\nA = undefined"),
        ("EVALMACRO x B * 2\nSET A $(x)", "B = 2", "B = 2\nA = 4"),
        ("COPY A C", "A = B + 1", "A = B + 1\nC = B + 1"),
        ("RENAME A C", "A = 1", "C = 1"),
        ("DELETE A\nDELETE Nope", "A = 1\nB = 2", "B = 2"),
        (
            "COPY /^Request(.+)/ Old\\1",
            "RequestCpus = 1\nA = 2",
            "RequestCpus = 1\nA = 2\nOldCpus = 1",
        ),
        (
            "RENAME /request(C.*)/ \\0_\\1",
            "RequestCpus = 1",
            "RequestCpus_Cpus = 1",
        ),
        ("DELETE /^a/", "Ab = 1\nB = 2", "B = 2"),
        (
            "x = 1\nSET A $(x)\nx = $(x)0\nSET B $(x)",
            "",
            "A = 1\nB = 10",
        ),
        (
            "SET Requirements TARGET.HasDocker && $(MY.Requirements)",
            "Requirements = Memory > 1",
            "Requirements = TARGET.HasDocker && Memory > 1",
        ),
        (
            "SET A \"$(MY.Owner)\"",
            "Owner = \"ann\"",
            "Owner = \"ann\"\nA = \"ann\"",
        ),
        (
            "SET A $INT(MY.B)",
            "B = C * 2\nC = 3",
            "B = C * 2\nC = 3\nA = 6",
        ),
        (
            "SET A \"$STRING(MY.B)\"",
            "B = strcat(\"x\", C)\nC = 3",
            "B = strcat(\"x\", C)\nC = 3\nA = \"x3\"",
        ),
        ("SET A $(MY.Nope:7)", "", "A = 7"),
        (
            "if defined MY.A\nSET B 1\nelse\nSET C 1\nendif",
            "A = 1",
            "A = 1\nB = 1",
        ),
        (
            "if defined MY.A\nSET B 1\nelse\nSET C 1\nendif",
            "",
            "C = 1",
        ),
        ("DELETE A\nif defined MY.A\nSET B 1\nendif", "A = 1", ""),
        (
            "REQUIREMENTS JobUniverse == 5 && WantSL6\nSET A 1",
            "JobUniverse = 5\nWantSL6 = true",
            "JobUniverse = 5\nWantSL6 = true\nA = 1",
        ),
        ("SET A 1\nREQUIREMENTS A == 1", "B = 1", "B = 1"),
        ("REQUIREMENTS Nope\nSET A 1", "B = 1", "B = 1"),
        ("NAME x\nUNIVERSE 5\nSET A 1", "", "A = 1"),
    ] {
        let ad = after(lines, job).expect(lines);
        assert!(is(&ad, expected), "{lines}: {ad}");
    }
}

/// The same, or what is wrong with the lines or with what they make of the job.
fn after_or_fault(lines: &str, job: &str) -> Result<ClassAd, String> {
    let text = format!("JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T @=end\n{lines}\n@end\n");
    match Config::parse(text, &Nowhere, &ConfigOptions::default()) {
        Ok(_) => after(lines, job),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn the_form_of_before_is_done_in_its_order() {
    let config = config(
        "JOB_TRANSFORM_NAMES = Old\n\
         JOB_TRANSFORM_Old = [ Name = \"x\"; Requirements = target.Owner == \"ann\"; set_A = 5; copy_A = \"OldA\"; \\\n\
           delete_B = true; eval_set_C = A + 1; set_S = \"a b\" ]\n",
    );
    let policy = config.submit_policy().expect("a policy");
    let job = |text| parse_old_ad(text).expect("a job");
    let done = policy.transform(&job("Owner = \"ann\"\nA = 1\nB = 2"), &Nowhere);
    let done = done.expect("a job");
    assert!(
        is(
            &done.ad,
            "Owner = \"ann\"\nOldA = 1\nA = 5\nC = 6\nS = \"a b\""
        ),
        "{}",
        done.ad
    );
    assert_eq!(done.by, ["Old"]);
    let other = policy
        .transform(&job("Owner = \"bob\"\nA = 1"), &Nowhere)
        .expect("a job");
    assert!(is(&other.ad, "Owner = \"bob\"\nA = 1"), "{}", other.ad);
    assert!(other.by.is_empty());
}

#[test]
fn transforms_are_done_one_after_the_other_with_the_configurations_macros() {
    let config = config(
        "WORD = \"w\"\nJOB_TRANSFORM_NAMES = Second, First\n\
         JOB_TRANSFORM_First = SET A A * 2\nJOB_TRANSFORM_First = EVALSET A A * 2\n\
         JOB_TRANSFORM_Second @=end\nSET A 3\nSET W $(WORD)\n@end\n",
    );
    let policy = config.submit_policy().expect("a policy");
    let done = policy.transform(&ClassAd::new(), &Nowhere).expect("a job");
    assert!(is(&done.ad, "A = 6\nW = \"w\""), "{}", done.ad);
}

#[test]
fn what_a_job_says_is_no_macro() {
    let ad = after("SET A \"$(MY.B)\"", "B = \"$(SECRET) costs $5\"").expect("a job");
    assert!(
        is(
            &ad,
            "B = \"$(SECRET) costs $5\"\nA = \"$(SECRET) costs $5\""
        ),
        "{ad}"
    );
}

#[test]
fn what_is_no_transform_is_a_fault_with_its_place() {
    for (lines, what) in [
        ("SET A 1 +", "SET A 1 +: no expression"),
        ("SET A", "something is missing"),
        ("SET 5 1", "expected the name"),
        ("FROB A 1", "no such command"),
        ("COPY /(/ x", "no regular expression"),
        ("COPY /x y", "does not end"),
        ("if true\nSET A 1", "does not end"),
        ("endif", "endif without an if"),
        ("DELETE A B", "nothing may stand"),
        ("REQUIREMENTS 1 +", "no expression"),
        ("TRANSFORM 5", "several"),
    ] {
        let fault = after_or_fault(lines, "").expect_err(lines);
        assert!(fault.starts_with("-, line 2: JOB_TRANSFORM_T: "), "{fault}");
        assert!(fault.contains(what), "{lines}: {fault}");
    }
    for (lines, what) in [
        ("SET A $(MY.B) +", "no expression: 1 +"),
        ("COPY B $(MY.B)", "\"1\" is no name"),
        ("SET A $INT(MY.C)", "is no integer"),
        ("if $(MY.C)\nendif", "a name"),
    ] {
        let fault = after(lines, "B = 1\nC = \"c\"").expect_err(lines);
        assert!(fault.contains(what), "{lines}: {fault}");
    }
    for (text, what) in [
        ("JOB_TRANSFORM_NAMES = T", "JOB_TRANSFORM_T is not defined"),
        (
            "SUBMIT_REQUIREMENT_NAMES = R",
            "SUBMIT_REQUIREMENT_R is not defined",
        ),
        (
            "JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T = [ set_A = ; ]",
            "no ad",
        ),
        (
            "JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T = [ copy_A = B ]",
            "expected a string",
        ),
        (
            "SUBMIT_REQUIREMENT_NAMES = R\nSUBMIT_REQUIREMENT_R = 1 +",
            "is no expression",
        ),
        (
            "SUBMIT_REQUIREMENT_NAMES = R\nSUBMIT_REQUIREMENT_R = 1\nSUBMIT_REQUIREMENT_R_REASON = 1 +",
            "is no expression",
        ),
        (
            "SUBMIT_REQUIREMENT_NAMES = R\nSUBMIT_REQUIREMENT_R = 1\nSUBMIT_REQUIREMENT_R_IS_WARNING = maybe",
            "neither true nor false",
        ),
    ] {
        let config = Config::examine_text(text, &Nowhere, &ConfigOptions::default());
        let faults = config
            .expect("statements")
            .faults()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert!(
            matches!(faults.as_slice(), [one] if one.contains(what)),
            "{text}: {faults:?}"
        );
    }
}

/// The manual's three requirements, and a warning before them.
const REQUIREMENTS: &str = "
    SUBMIT_REQUIREMENT_NAMES = OneGig, NotStandardUniverse, MinimalRequestMemory, NotChris
    SUBMIT_REQUIREMENT_OneGig = RequestMemory > 1024
    SUBMIT_REQUIREMENT_OneGig_REASON = \"soon 1024\"
    SUBMIT_REQUIREMENT_OneGig_IS_WARNING = TRUE
    SUBMIT_REQUIREMENT_NotStandardUniverse = JobUniverse != 1
    SUBMIT_REQUIREMENT_NotStandardUniverse_REASON = \"This pool does not accept standard universe jobs.\"
    SUBMIT_REQUIREMENT_MinimalRequestMemory = RequestMemory > 512
    SUBMIT_REQUIREMENT_MinimalRequestMemory_REASON = strcat( \"The job only requested \", \\
        RequestMemory, \" Megabytes.\" )
    SUBMIT_REQUIREMENT_NotChris = Owner != \"chris\" && MY.Open
";

#[test]
fn requirements_are_asked_in_order_up_to_the_first_refusal() {
    let config = config(REQUIREMENTS);
    let policy = config.submit_policy().expect("a policy");
    let my = parse_old_ad("Open = true").expect("an ad");
    let met = || Verdict::Met;
    let (warned, refused) = (
        |text: &str| Verdict::Warned(text.into()),
        |text: &str| Verdict::Refused(text.into()),
    );
    for (job, expected) in [
        (
            "JobUniverse = 5\nRequestMemory = 2000\nOwner = \"ann\"",
            vec![met(), met(), met(), met()],
        ),
        (
            "JobUniverse = 5\nRequestMemory = 600\nOwner = \"ann\"",
            vec![warned("soon 1024"), met(), met(), met()],
        ),
        (
            "JobUniverse = 1\nRequestMemory = 2000\nOwner = \"ann\"",
            vec![
                met(),
                refused("This pool does not accept standard universe jobs."),
            ],
        ),
        (
            "JobUniverse = 5\nRequestMemory = 5\nOwner = \"ann\"",
            vec![
                warned("soon 1024"),
                met(),
                refused("The job only requested 5 Megabytes."),
            ],
        ),
        (
            "JobUniverse = 5\nRequestMemory = 2000\nOwner = \"chris\"",
            vec![
                met(),
                met(),
                met(),
                refused("submit requirement NotChris is not met"),
            ],
        ),
        (
            "JobUniverse = 5\nRequestMemory = 2000",
            vec![
                met(),
                met(),
                met(),
                refused("submit requirement NotChris is undefined, neither true nor false"),
            ],
        ),
        (
            "JobUniverse = 5\nRequestMemory = \"x\"\nOwner = \"ann\"",
            vec![
                warned("submit requirement OneGig is error, neither true nor false"),
                met(),
                refused("submit requirement MinimalRequestMemory is error, neither true nor false"),
            ],
        ),
    ] {
        let job = parse_old_ad(job).expect("a job");
        let said: Vec<Verdict> = policy
            .opinions(&my, &job, &Nowhere)
            .into_iter()
            .map(|opinion| opinion.verdict)
            .collect();
        assert_eq!(said, expected, "{job}");
    }
}

proptest! {
    /// Lines that may be commands: a configuration with them is one or has a fault, a job passes or does not, nothing panics.
    #[test]
    fn no_text_makes_a_transform_panic(
        lines in prop::collection::vec(
            "(SET|DEFAULT|EVALSET|EVALMACRO|COPY|RENAME|DELETE|REQUIREMENTS|if|elif|else|endif|x =)? ?(A|B|/(A|.|\\()*/|\\$\\(MY.A\\)|defined MY.A)? ?[=,]? ?([A-C]|[0-9\\\\+\"'$()\\[\\];/ .]|\\$\\((x|A|MY.B)\\)){0,6}",
            0..6,
        ),
        value in "[ -~]{0,8}",
    ) {
        let job = ClassAd::from_iter([("A", crate::Expr::from(value.as_str())), ("B", crate::Expr::from(2))]);
        let text = format!("JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T @=end\n{}\n@end\n", lines.join("\n"));
        if let Ok(config) = Config::parse(text, &Nowhere, &ConfigOptions::default()) {
            let policy = config.submit_policy().expect("it has no fault");
            let _ = policy.transform(&job, &Nowhere);
        }
    }

    /// Renaming there and back changes nothing; what is copied is equal.
    #[test]
    fn renaming_there_and_back_changes_nothing(number in any::<i64>(), text in "[a-zA-Z0-9$() ]{0,12}") {
        let job = ClassAd::from_iter([("A", crate::Expr::from(number)), ("B", crate::Expr::from(text.as_str()))]);
        let text = "JOB_TRANSFORM_NAMES = T\nJOB_TRANSFORM_T @=end\n\
            RENAME /^([AB])$/ New\\1\nCOPY NewB C\nRENAME NewA A\nRENAME NewB B\n@end\n";
        let config = config(text);
        let done = config.submit_policy().expect("a policy").transform(&job, &Nowhere).expect("a job");
        let mut expected = job.clone();
        expected.insert("C", std::sync::Arc::clone(job.get("B").expect("is there")));
        prop_assert_eq!(done.ad, expected);
    }
}
