//! The words of a command.

/// Parts a command into words, as Condor's arguments are: in double quotes, words may have blanks within single quotes, and
/// two quotes are one; else blanks part words and nothing else counts.
pub(super) fn words(command: &str) -> Result<Vec<String>, &'static str> {
    let command = command.trim();
    let Some(quoted) = command.strip_prefix('"') else {
        return Ok(command.split_whitespace().map(str::to_owned).collect());
    };
    let mut text = String::new();
    let mut characters = quoted.chars().peekable();
    loop {
        match characters.next() {
            None => return Err("a quote does not end"),
            Some('"') if characters.next_if_eq(&'"').is_some() => text.push('"'),
            Some('"') => break,
            Some(other) => text.push(other),
        }
    }
    if characters.any(|rest| !rest.is_whitespace()) {
        return Err("something stands behind the closing quote");
    }
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut characters = text.chars().peekable();
    let mut within = false;
    while let Some(character) = characters.next() {
        match character {
            '\'' if within && characters.next_if_eq(&'\'').is_some() => {
                word.get_or_insert_default().push('\'');
            }
            '\'' => {
                within = !within;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !within => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    if within {
        return Err("a single quote does not end");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parted_into_words() {
        let parted = |command| words(command).unwrap_or_default().join("|");
        assert_eq!(parted("echo  A = 'b c'"), "echo|A|=|'b|c'");
        assert_eq!(parted("\"sh -c 'echo A = 4'\""), "sh|-c|echo A = 4");
        assert_eq!(parted("\"a 'it''s' \"\"b\"\" ''\""), "a|it's|\"b\"|");
        assert!(words("\"a").is_err());
        assert!(words("\"a 'b\"").is_err());
        assert!(words("\"a\" b").is_err());
    }
}
