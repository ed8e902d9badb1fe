//! Ads in whatever syntax.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::json::parse_json_ads;
use crate::old::parse_old_ads;
use crate::parser::parse_ads;

/// Parses ads: JSON where the first that is no blank is `{`, or `[` and then `{`; the new syntax where it is `[` or `/`; else the old.
///
/// # Errors
/// [`ParseError`] for what is none of them.
///
/// ```
/// for text in ["a = 1\n", "[ a = 1 ]", "{ \"a\": 1 }", "[{ \"a\": 1 }]"] {
///     assert_eq!(classad::parse_any_ads(text)?[0].to_string(), "[ a = 1 ]");
/// }
/// # Ok::<(), classad::ParseError>(())
/// ```
pub fn parse_any_ads(text: impl AsRef<[u8]>) -> Result<Vec<ClassAd>, ParseError> {
    let text = text.as_ref();
    match text.trim_ascii_start() {
        [b'{', ..] => parse_json_ads(text),
        // No ad of the new syntax begins so: a name stands there.
        [b'[', rest @ ..] if rest.trim_ascii_start().starts_with(b"{") => parse_json_ads(text),
        [b'[' | b'/', ..] => parse_ads(text),
        _ => parse_old_ads(text),
    }
}
