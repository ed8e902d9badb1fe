//! What holds for every configuration: any bytes are one or an error, and no rule is forgotten where there is no oracle.
#![allow(clippy::expect_used, reason = "a test")]

use classad::config::{
    Config, ConfigError, ConfigLimits, ConfigOptions, Dialect, Origin, Sources, WarningKind,
};
use classad::{Nowhere, Surroundings};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

/// Files in memory; commands print their words.
#[derive(Default)]
struct Memory {
    files: Mutex<BTreeMap<String, String>>,
}

impl Memory {
    fn new(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self {
            files: Mutex::new(files.iter().map(owned).collect()),
        }
    }
}

impl Surroundings for Memory {
    fn now(&self) -> i64 {
        0
    }
    fn random(&self) -> i32 {
        7
    }
}

impl Sources for Memory {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let files = self.files.lock().expect("a lock");
        let text = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let files = self.files.lock().expect("a lock");
        let prefix = format!("{directory}/");
        let names = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        let names: Vec<String> = names.map(str::to_owned).collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names),
        }
    }
    fn run(&self, command: &[String]) -> io::Result<(Vec<u8>, i32)> {
        Ok((
            command.join(" ").into_bytes(),
            i32::from(command[0] == "fail"),
        ))
    }
    fn write(&self, path: &str, contents: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(contents).into_owned();
        self.files
            .lock()
            .expect("a lock")
            .insert(path.to_owned(), text);
        Ok(())
    }
    fn overrides(&self) -> Vec<(String, String)> {
        vec![("OVER".to_owned(), "$(OVER) environment".to_owned())]
    }
}

fn parsed(text: &str) -> Config {
    let config = Config::parse(text, &Memory::default(), &ConfigOptions::default());
    config.unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> ConfigError {
    match Config::parse(text, &Memory::default(), &ConfigOptions::default()) {
        Ok(_) => panic!("{text}: no error"),
        Err(error) => error,
    }
}

#[test]
fn an_undefined_macro_is_empty_and_a_warning() {
    let config = parsed("A = x$(Nope)y $(Nope:z)\nB = $(A)\n");
    assert_eq!(config.get("a").as_deref(), Some("xy z"));
    let [warning] = config.warnings() else {
        panic!("{:?}", config.warnings());
    };
    let undefined = WarningKind::Undefined {
        name: "A".to_owned(),
        macro_name: "Nope".to_owned(),
    };
    assert_eq!(warning.kind, undefined);
    assert_eq!(warning.at.to_string(), "-, line 1");
    // Also where it is the name itself, of which there is no value yet.
    let config = parsed("\nA = $(A) x\nA = $(A) y\nB = $(B:z)\nSTART = ($(START)) || A\n");
    assert_eq!(config.get("a").as_deref(), Some(" x y"));
    let [warning] = config.warnings() else {
        panic!("{:?}", config.warnings());
    };
    assert_eq!(warning.to_string(), "-, line 2: A: A is not defined");
}

#[test]
fn a_circle_is_an_error_with_file_line_and_name() {
    for (text, circle) in [
        ("\nA = $(B)\nB = $(C) x\nC = $(A)\n", "A -> B -> C -> A"),
        ("A = $INT(B)\nB = $(A)\n", "A -> B -> A"),
        ("A = $(B:$(A))\nB = $(A)", "A -> B -> A"),
        ("A = $F(B)\nB = $F(A)", "A -> B -> A"),
    ] {
        let error = refused(text).to_string();
        assert!(
            error.contains(circle) && error.starts_with("-, line "),
            "{text}: {error}"
        );
    }
    // A name that is built in becomes part of one.
    let error = refused("MINUTE = $(HOUR) / 60\nHOUR = 60 * $(MINUTE)\n").to_string();
    assert!(error.contains("HOUR -> MINUTE -> HOUR"), "{error}");
}

#[test]
fn what_only_refers_to_a_circle_is_not_to_blame() {
    let text = "A = $(B)\nB = $(A)\nC = $(A) c\nD = 1\n";
    let config = Config::examine_text(text, &Nowhere, &ConfigOptions::default());
    let config = config.expect("a configuration");
    let names: Vec<_> = config
        .faults()
        .iter()
        .filter_map(ConfigError::name)
        .collect();
    assert_eq!(names, ["A", "B"]);
    assert_eq!(
        (config.get("C"), config.get("D").as_deref()),
        (None, Some("1"))
    );
}

#[test]
fn a_value_that_refers_to_itself_has_its_old_value() {
    let config = parsed("A = 1\nA = $(A) 2\nSTART = ($(START)) || x\nB = $(B:none)\n");
    assert_eq!(config.get("A").as_deref(), Some("1 2"));
    assert_eq!(config.get("START").as_deref(), Some("(True) || x"));
    assert_eq!(config.get("B").as_deref(), Some("none"));
}

#[test]
fn values_that_have_to_be_expressions_are() {
    for name in [
        "START",
        "SUSPEND",
        "WANT_VACATE_VANILLA",
        "STARTD.PREEMPT",
        "SLOT_TYPE_1_START",
    ] {
        let text = format!("\n{name} = (KeyboardIdle > 5\n");
        let error = refused(&text);
        assert!(matches!(error, ConfigError::Expression { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("-, line 2: {name} is no")),
            "{error}"
        );
    }
    refused("STARTD_ATTRS = Room\nRoom = 1 +\n");
    parsed("Room = 1 +\nSTART = $$(Waits for a job\nSUSPEND =\n");
}

#[test]
fn jobs_of_a_universe_may_have_values_of_their_own() {
    let config = parsed("SUSPEND = a\nSUSPEND_VANILLA = b\nKILL_VM = c\nPREEMPT_VANILLA =\n");
    let value = |name, universe| config.get_for_universe(name, universe);
    assert_eq!(value("SUSPEND", 5).as_deref(), Some("b"));
    assert_eq!(value("SUSPEND", 1).as_deref(), Some("a"));
    assert_eq!(value("SUSPEND", 13).as_deref(), Some("a"));
    assert_eq!(value("KILL", 13).as_deref(), Some("c"));
    assert_eq!(value("PREEMPT", 5).as_deref(), Some("False"));
    assert_eq!(config.choices_for_universe("SUSPEND", 5), ["b", "a"]);
    assert_eq!(config.choices_for_universe("SUSPEND", 8), ["a"]);
}

#[test]
fn prefixes_are_stronger_than_names_without() {
    let text = "A = 1\nSTARTD.A = 2\nstartd.B = 3\none.A = 4\nSCHEDD.A = 5\nC = $(A)\n";
    assert_eq!(parsed(text).get("C").as_deref(), Some("2"));
    let options = ConfigOptions {
        local_name: Some("ONE".to_owned()),
        ..ConfigOptions::default()
    };
    let config = Config::parse(text, &Nowhere, &options).expect("a configuration");
    assert_eq!(config.get("C").as_deref(), Some("4"));
    assert_eq!(config.get("b").as_deref(), Some("3"));
}

#[test]
fn local_files_and_the_environment_come_after_the_global_file() {
    let memory = Memory::new(&[
        (
            "/global",
            "OVER = g\nLOCAL_CONFIG_DIR = /d\nLOCAL_CONFIG_FILE = /one /two\n",
        ),
        ("/d/b", "OVER = $(OVER) b"),
        ("/d/a", "OVER = $(OVER) a"),
        ("/d/x~", "OVER = $(OVER) backup"),
        (
            "/one",
            "OVER = $(OVER) one\nLOCAL_CONFIG_FILE = /two /three",
        ),
        ("/two", "OVER = $(OVER) two"),
        ("/three", "OVER = $(OVER) three"),
    ]);
    let config = Config::read("/global", &memory, &ConfigOptions::default());
    let config = config.expect("a configuration");
    assert_eq!(
        config.get("OVER").as_deref(),
        Some("g a b one two three environment")
    );
    assert_eq!(
        config.files(),
        ["/global", "/d/a", "/d/b", "/one", "/two", "/three"]
    );
    let setting = config.setting("over").expect("a setting");
    assert_eq!(*setting.origin, Origin::Environment);
}

#[test]
fn what_a_command_prints_is_kept_and_read_the_next_time() {
    let memory = Memory::default();
    let text = "include command into /kept : A = 1\n";
    for _ in 0..2 {
        let config = Config::parse(text, &memory, &ConfigOptions::default());
        assert_eq!(
            config.expect("a configuration").get("A").as_deref(),
            Some("1")
        );
    }
    let kept = memory.files.lock().expect("a lock").get("/kept").cloned();
    assert_eq!(kept.as_deref(), Some("A = 1"));
    let failing = "include command into /other : fail = 1\n";
    assert!(Config::parse(failing, &memory, &ConfigOptions::default()).is_err());
    let config = Config::parse(
        "include command : fail = 1\n",
        &memory,
        &ConfigOptions::default(),
    );
    let config = config.expect("a configuration");
    assert!(matches!(
        config.warnings()[0].kind,
        WarningKind::Status { status: 1, .. }
    ));
}

#[test]
fn nesting_ends() {
    let memory = Memory::new(&[("/self", "include : /self\n")]);
    let error = Config::read("/self", &memory, &ConfigOptions::default());
    assert!(matches!(error, Err(ConfigError::TooDeep { limit: 20, .. })));
    let ifs = "if true\n".repeat(64);
    assert!(matches!(
        refused(&ifs),
        ConfigError::TooDeep { limit: 63, .. }
    ));
    let mut text = String::from("A0 = 1\n");
    for depth in 1..200 {
        text.push_str(&format!("A{depth} = $INT(A{})\n", depth - 1));
    }
    assert!(matches!(refused(&text), ConfigError::Function { .. }));
}

#[test]
fn values_do_not_grow_without_end() {
    let mut text = String::from("A = xxxxxxxxxxxxxxxx\n");
    text.push_str(&"A = $(A)$(A)\n".repeat(40));
    assert!(matches!(refused(&text), ConfigError::TooLarge { .. }));
    let mut text = String::from("A0 = xxxxxxxxxxxxxxxx\n");
    for depth in 1..40 {
        text.push_str(&format!("A{depth} = $(A{0})$(A{0})\n", depth - 1));
    }
    // Whichever limit is met first, the size or the work.
    let error = refused(&text);
    assert!(
        matches!(
            error,
            ConfigError::TooLarge { .. } | ConfigError::Function { .. }
        ),
        "{error}"
    );
    // Nothing grows here, but it would never end.
    let text = "K = $$SUBSTR(K,1)\nX = $SUBSTR(K,1)\n";
    let config = Config::examine_text(text, &Nowhere, &ConfigOptions::default());
    assert_eq!(config.expect("a configuration").faults().len(), 1);
    let limits = ConfigLimits {
        total_bytes: 1_000,
        ..ConfigLimits::default()
    };
    let options = ConfigOptions {
        limits,
        ..ConfigOptions::default()
    };
    let error = Config::parse("A = 1\n".repeat(1_000), &Nowhere, &options);
    assert!(matches!(error, Err(ConfigError::TooLarge { .. })));
}

#[test]
fn every_dialect_has_what_its_manual_names() {
    for dialect in Dialect::ALL {
        let options = ConfigOptions {
            dialect,
            ..ConfigOptions::default()
        };
        let memory = Memory::default();
        let config = Config::parse("", &memory, &options).expect("a configuration");
        assert_eq!(config.dialect().to_string().parse(), Ok(dialect));
        for name in [
            "MINUTE",
            "HOUR",
            "BackgroundLoad",
            "HighLoad",
            "StartIdleTime",
            "SmallJob",
            "BigJob",
        ] {
            assert!(config.get(name).is_some(), "{dialect}: {name}");
        }
    }
    let value = |dialect, name: &str| {
        let options = ConfigOptions {
            dialect,
            ..ConfigOptions::default()
        };
        Config::parse("", &Nowhere, &options)
            .expect("a configuration")
            .get(name)
    };
    let is = |dialect, name, expected: &str| {
        assert_eq!(
            value(dialect, name).as_deref(),
            Some(expected),
            "{dialect}: {name}"
        );
    };
    is(Dialect::V6_1, "MATCH_TIMEOUT", "300");
    is(Dialect::V6_8, "MATCH_TIMEOUT", "120");
    is(Dialect::V6_8, "IsPVM", "(TARGET.JobUniverse == 4)");
    is(Dialect::V6_8, "IsOwner", "(START =?= False)");
    is(Dialect::V25, "IS_OWNER", "False");
    is(Dialect::V25, "IsVM", "(TARGET.JobUniverse == 13)");
    is(Dialect::V6_1, "SmallJob", "(ImageSize < (10 * 1024))");
}

#[test]
fn versions_are_the_dialects() {
    let text = "if version >= 8.1.2\nA = new\nelse\nA = old\nendif\nB : x\n";
    for (dialect, expected, warnings) in [(Dialect::V6_8, "old", 0), (Dialect::V25, "new", 1)] {
        let options = ConfigOptions {
            dialect,
            ..ConfigOptions::default()
        };
        let config = Config::parse(text, &Nowhere, &options).expect("a configuration");
        assert_eq!(config.get("A").as_deref(), Some(expected));
        assert_eq!(config.warnings().len(), warnings);
    }
}

#[test]
fn a_configuration_can_refuse_itself() {
    match refused("A = x\nerror 7 : no $(A)\n") {
        ConfigError::Stopped { code, message, at } => {
            assert_eq!((code, message.as_str()), (7, "no x"));
            assert_eq!(at.to_string(), "-, line 2");
        }
        other => panic!("{other}"),
    }
    let error = refused("use POLICY : PREEMPT_IF\n").to_string();
    assert!(
        error.starts_with("-, line 1, use POLICY:PREEMPT_IF line "),
        "{error}"
    );
    let config = parsed("warning : careful\n");
    let said = WarningKind::Said {
        message: "careful".to_owned(),
    };
    assert_eq!(config.warnings()[0].kind, said);
}

#[test]
fn functions_that_cannot_be_carried_out_are_errors() {
    for text in [
        "A = $INT(x y)",
        "A = $INT(1,%s)",
        "A = $REAL(1,%d)",
        "A = $CHOICE(3,a,b)",
        "A = $CHOICE(x,a,b)",
        "A = $CHOICE(0,Nope)",
        "A = $RANDOM_CHOICE()",
        "A = $RANDOM_INTEGER(5,3)",
        "A = $RANDOM_INTEGER(1,9,0)",
        "A = $SUBSTR(A)",
        "A = $SUBSTR(MINUTE,x)",
        "A = $STRING(1,%d)",
    ] {
        assert!(
            matches!(refused(text), ConfigError::Function { .. }),
            "{text}"
        );
    }
}

#[test]
fn names_are_in_order_and_settings_know_what_is_built_in() {
    let config = parsed("Zz = 1\nminute = 5\n");
    let names = config.names();
    assert!(names.is_sorted_by_key(|name| name.to_lowercase()));
    let of = |name| config.setting(name).expect("a setting");
    assert_eq!(
        (of("MINUTE").name, of("MINUTE").is_built_in),
        ("MINUTE", false)
    );
    assert!(of("HOUR").is_built_in);
    assert_eq!(
        config
            .expression("HOUR")
            .expect("one")
            .map(|e| e.to_string()),
        Some("3600".to_owned())
    );
}

/// Bytes that are likely to mean something.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "A",
        "B",
        "C",
        " ",
        "\n",
        "\\\n",
        "=",
        ":",
        "+=",
        "+||=",
        "@=t",
        "\n@t\n",
        "$(",
        ")",
        "$(A)",
        "$(B:",
        "$$(",
        "$INT(",
        "$SUBSTR(A,1)",
        "$F(",
        "$Fqpn(A)",
        "$ENV(X)",
        "$CHOICE(0,A)",
        "$EVAL(",
        "#",
        "if ",
        "\nif true\n",
        "\nelse\n",
        "\nendif\n",
        "\nelif ",
        "version >= 8.0",
        "defined ",
        "\ninclude : ",
        "\nuse POLICY : ",
        "DESKTOP",
        "PREEMPT_IF(A)",
        "WANT_HOLD_IF(A,1,",
        "\nuse FEATURE : ",
        "StaticSlots(",
        "\nerror : ",
        "\nwarning : ",
        "START",
        "STARTD.",
        ",",
        "(",
        "1",
        "-1",
        "\"",
        "'",
        "%d",
        "%s",
        "/a/b",
        "é",
        "LOCAL_CONFIG_FILE",
        "\n",
        "\n",
        " = ",
        " = ",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_a_configuration_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Config::examine_text(&bytes, &Memory::default(), &ConfigOptions::default());
    }

    #[test]
    fn any_words_are_a_configuration_or_an_error(text in pieces()) {
        let memory = Memory::default();
        let Ok(config) = Config::examine_text(&text, &memory, &ConfigOptions::default()) else {
            return Ok(());
        };
        // What is read tells the same of itself whichever way it is asked.
        for setting in config.settings() {
            prop_assert_eq!(config.setting(setting.name).map(|one| one.name.to_lowercase()).is_some(), true);
            let value = config.get(setting.name);
            prop_assert!(value.as_deref() != Some(""));
            let _ = config.expression(setting.name);
        }
        // Read again, it is the same.
        let again = Config::examine_text(&text, &memory, &ConfigOptions::default()).expect("the same");
        let values = |config: &Config| {
            let values = config.settings().into_iter().map(|one| (one.name.to_owned(), config.get(one.name)));
            values.collect::<Vec<_>>()
        };
        prop_assert_eq!(values(&config), values(&again));
    }
}
