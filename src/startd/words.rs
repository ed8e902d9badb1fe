//! What stands in job files: words and variables in both of Condor's forms, sizes, yes and no.

/// The value of `arguments`: in double quotes as today (a double quote in it is written twice), or as before.
pub(super) fn words_of(value: &str) -> Result<Vec<String>, String> {
    match unquoted(value)? {
        Some(text) => quoted_words(&text),
        None => Ok(plain_words(value)),
    }
}

/// The value of `environment`, in both forms.
pub(super) fn variables(value: &str) -> Result<Vec<(String, String)>, String> {
    match unquoted(value)? {
        Some(text) => pairs(quoted_words(&text)?.into_iter()),
        None => pairs(value.split(';').map(str::to_owned)),
    }
}

/// What stands in double quotes, if all does.
fn unquoted(value: &str) -> Result<Option<String>, String> {
    let Some(inner) = value.strip_prefix('"') else {
        return Ok(None);
    };
    let inner = inner
        .strip_suffix('"')
        .ok_or("a double quote is not closed")?;
    let plain = inner.replace("\"\"", "");
    match plain.contains('"') {
        true => Err("a double quote in double quotes is written twice".to_owned()),
        false => Ok(Some(inner.replace("\"\"", "\""))),
    }
}

/// Words with blanks between them.
pub(super) fn plain_words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace()
        .map(|word| word.replace("\\\"", "\""))
        .collect()
}

/// Words, those with blanks in single quotes, in which a single quote is written twice: the reverse of [`crate::classad::arguments`].
pub(super) fn quoted_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quoted) {
            ('\'', true) if letters.peek() == Some(&'\'') => {
                letters.next();
                word.get_or_insert_default().push('\'');
            }
            ('\'', _) => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            (blank, false) if blank.is_ascii_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    match quoted {
        true => Err("a single quote is not closed".to_owned()),
        false => Ok(words),
    }
}

pub(super) fn pairs(words: impl Iterator<Item = String>) -> Result<Vec<(String, String)>, String> {
    let pair = |word: String| match word.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err(format!("found `{word}`, expected NAME=VALUE")),
    };
    words
        .filter(|word| !word.trim().is_empty())
        .map(pair)
        .collect()
}

pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "t" | "1" => Some(true),
        "false" | "no" | "f" | "0" => Some(false),
        _ => None,
    }
}

/// A size with a unit, in units of two to the power of `shift` bytes.
pub(super) fn with_unit(value: &str, shift: u32) -> Option<i64> {
    let digits = value
        .trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .trim();
    let unit = value[digits.len()..].trim().to_ascii_lowercase();
    let power = match unit.trim_end_matches('b') {
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let number: f64 = digits.parse().ok().filter(|number: &f64| *number >= 0.0)?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "bounded by what a number of units can be"
    )]
    let units = (number * 2f64.powi(power - shift.cast_signed())).ceil() as i64;
    Some(units)
}

/// The attribute of a submit command (in small letters) whose value is an expression.
pub(super) fn attribute_of(command: &str) -> Option<String> {
    let named = match command {
        "requirements" => "Requirements",
        "rank" | "preferences" => "Rank",
        "request_cpus" => "RequestCpus",
        "request_memory" => "RequestMemory",
        "request_disk" => "RequestDisk",
        "request_gpus" => "RequestGPUs",
        "require_gpus" => "RequireGPUs",
        "image_size" => "ImageSize",
        "max_job_retirement_time" => "MaxJobRetirementTime",
        "job_max_vacate_time" => "JobMaxVacateTime",
        "job_lease_duration" => "JobLeaseDuration",
        "kill_sig_timeout" => "KillSigTimeout",
        "priority" | "prio" => "JobPrio",
        "batch_name" => "JobBatchName",
        "want_journal" => "WantJournal",
        "nice_user" => "NiceUser",
        "periodic_hold" => "PeriodicHold",
        "periodic_hold_reason" => "PeriodicHoldReason",
        "periodic_hold_subcode" => "PeriodicHoldSubCode",
        "periodic_release" => "PeriodicRelease",
        "periodic_remove" => "PeriodicRemove",
        // Of any resource that a machine may have (MACHINE_RESOURCE_x).
        other => {
            let resource = other.strip_prefix("request_")?;
            let (first, rest) = resource.split_at_checked(1)?;
            return Some(format!("Request{}{rest}", first.to_ascii_uppercase()));
        }
    };
    Some(named.to_owned())
}
