//! Attributes that the configuration adds: STARTD_ATTRS, STARTD_EXPRS, those of one slot, and what slots see of each other.

use super::dialect::Era as _;
use classad::config::Dialect;
use classad::{ClassAd, Expr, ParseError, parse_expression};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An attribute of the configuration that is no expression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CustomError {
    /// It cannot be parsed; most often a string without quotes.
    #[error("attribute {name} of {list} is no expression: {text}")]
    NoExpression {
        /// The attribute.
        name: String,
        /// The list that has its name.
        list: String,
        /// Its definition.
        text: String,
        /// What is wrong.
        #[source]
        source: ParseError,
    },
}

/// An attribute, and what it stands for.
type Entry = (String, Option<Arc<Expr>>);

/// Attributes by slot. None in place of an expression: the attribute is taken away.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Custom {
    slots: BTreeMap<u32, Vec<Entry>>,
}

impl Custom {
    /// Reads the lists for slots 1 to `slots` (manual, "Configuring STARTD_ATTRS on a per-slot basis"). `macros` says what a name of the
    /// configuration stands for, whatever the case of its letters.
    ///
    /// The lists are STARTD_EXPRS, STARTD_ATTRS, and the same of the slot, SLOT1_STARTD_ATTRS (6.x: VM1_). What an attribute stands for is
    /// SLOT1_name if there is that, else name; one that stands for nothing is left out, one that stands for an empty text is taken away.
    ///
    /// # Errors
    /// [`CustomError`] for the first attribute that is no expression.
    pub fn read(
        dialect: Dialect,
        slots: u32,
        macros: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, CustomError> {
        let mut custom = Custom::default();
        for slot in 1..=slots {
            let prefix = dialect.slot_name(slot, None).to_ascii_uppercase();
            let lists = [
                "STARTD_EXPRS".to_owned(),
                "STARTD_ATTRS".to_owned(),
                "STARTD_LATCH_EXPRS".to_owned(),
                format!("{prefix}_STARTD_EXPRS"),
                format!("{prefix}_STARTD_ATTRS"),
            ];
            let mut attributes = vec![];
            for list in lists {
                let names = macros(&list).unwrap_or_default();
                for name in words(&names) {
                    let own = macros(&format!("{prefix}_{name}"));
                    let Some(text) = own.or_else(|| macros(name)) else {
                        continue;
                    };
                    attributes.push((name.to_owned(), expression(name, &list, text.trim())?));
                }
            }
            custom.slots.insert(slot, attributes);
        }
        Ok(custom)
    }

    /// Puts the slot's attributes into its ad, over what is there.
    pub fn put(&self, slot: u32, ad: &mut ClassAd) {
        for (name, expr) in self.slots.get(&slot).into_iter().flatten() {
            match expr {
                Some(expr) => ad.insert(name.as_str(), expr.clone()),
                None => ad.remove(name.as_str()),
            };
        }
    }
}

fn expression(name: &str, list: &str, text: &str) -> Result<Option<Arc<Expr>>, CustomError> {
    if text.is_empty() {
        return Ok(None);
    }
    let expr = parse_expression(text).map_err(|source| CustomError::NoExpression {
        name: name.to_owned(),
        list: list.to_owned(),
        text: text.to_owned(),
        source,
    })?;
    Ok(Some(Arc::new(expr)))
}

/// Names between commas and blanks.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let parts = list.split(|c: char| c == ',' || c.is_whitespace());
    parts.filter(|word| !word.is_empty())
}

/// Shows in each ad the named attributes of every slot as `slot1_State` (6.x: `vm1_State`): STARTD_SLOT_ATTRS, in former times STARTD_VM_EXPRS.
/// `slots` are the numbers of the slots whose ads these are.
pub fn share(
    dialect: Dialect,
    slots: &[(u32, Option<u32>)],
    names: &[String],
    ads: &mut [ClassAd],
) {
    let mut shown = vec![];
    for ((id, sub_id), ad) in slots.iter().zip(ads.iter()) {
        let prefix = dialect.slot_name(*id, *sub_id);
        for name in names.iter().flat_map(|list| words(list)) {
            if let Some(expr) = ad.get(name) {
                shown.push((format!("{prefix}_{name}"), expr.clone()));
            }
        }
    }
    for ad in ads {
        for (name, expr) in &shown {
            ad.insert(name.as_str(), expr.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |wanted| {
            let mut lines = lines.iter().rev();
            let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    fn ads(custom: &Custom, slots: u32) -> Vec<String> {
        let ad = |slot| {
            let mut ad = ClassAd::new();
            custom.put(slot, &mut ad);
            ad.to_string()
        };
        (1..=slots).map(ad).collect()
    }

    /// The two examples of the current manual.
    #[test]
    fn lists_and_attributes_of_one_slot_are_read_as_in_the_manual() {
        let names = config(&[
            ("favorite_color", "1"),
            ("favorite_season", "2"),
            ("favorite_movie", "3"),
            ("favorite_song", "4"),
            ("STARTD_ATTRS", "favorite_color, favorite_season"),
            ("SLOT1_STARTD_ATTRS", "favorite_movie"),
            ("SLOT2_STARTD_ATTRS", "favorite_song"),
        ]);
        let custom = Custom::read(Dialect::V25, 2, names).expect("is there");
        assert_eq!(
            ads(&custom, 2),
            [
                "[ favorite_color = 1; favorite_movie = 3; favorite_season = 2 ]",
                "[ favorite_song = 4; favorite_color = 1; favorite_season = 2 ]",
            ]
            .map(|text| {
                let ad = classad::parse_ad(text).expect("is there");
                ad.to_string()
            })
        );
        let values = config(&[
            ("favorite_color", "\"blue\""),
            ("favorite_season", "\"spring\""),
            ("STARTD_ATTRS", "favorite_color, favorite_season"),
            ("SLOT2_favorite_color", "\"green\""),
            ("SLOT3_favorite_season", "\"summer\""),
        ]);
        let custom = Custom::read(Dialect::V25, 3, values).expect("is there");
        assert_eq!(
            ads(&custom, 3),
            [
                r#"[ favorite_color = "blue"; favorite_season = "spring" ]"#,
                r#"[ favorite_color = "green"; favorite_season = "spring" ]"#,
                r#"[ favorite_color = "blue"; favorite_season = "summer" ]"#,
            ]
        );
    }

    #[test]
    fn the_former_names_of_lists_and_slots_are_read() {
        let config = config(&[
            ("STARTD_EXPRS", "IsDesktop HasNothing"),
            ("IsDesktop", "True"),
            ("VM2_IsDesktop", ""),
        ]);
        let custom = Custom::read(Dialect::V6_8, 2, config).expect("is there");
        assert_eq!(ads(&custom, 2), ["[ IsDesktop = true ]", "[  ]"]);
    }

    #[test]
    fn what_is_no_expression_is_named() {
        let config = config(&[("STARTD_ATTRS", "Color"), ("Color", "light blue")]);
        let error = Custom::read(Dialect::V25, 1, config).expect_err("is wrong");
        let expected = "attribute Color of STARTD_ATTRS is no expression: light blue";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn slots_see_each_other() {
        let ad = |state: &str| ClassAd::from_iter([("State", Expr::from(state))]);
        let mut ads = [ad("Owner"), ad("Claimed")];
        let names = ["State, Activity".to_owned()];
        share(Dialect::V25, &[(1, None), (1, Some(2))], &names, &mut ads);
        let expected = r#"[ State = "Owner"; slot1_State = "Owner"; slot1_2_State = "Claimed" ]"#;
        assert_eq!(ads[0].to_string(), expected);
        let mut ads = [ad("Owner")];
        share(Dialect::V6_8, &[(1, None)], &names, &mut ads);
        assert_eq!(
            ads[0].to_string(),
            r#"[ State = "Owner"; vm1_State = "Owner" ]"#
        );
    }
}
