//! Ads: names bound to expressions.

use crate::expr::{Expr, Literal};
use crate::name::Name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A `ClassAd`: expressions under names whose case does not count.
///
/// Attributes are in the original's order: short names first, then by their letters.
///
/// ```
/// use classad::{ClassAd, Expr};
/// let mut ad = ClassAd::new();
/// ad.insert("Memory", Expr::from(512));
/// ad.insert("OpSys", Expr::from("LINUX"));
/// assert_eq!(ad.to_string(), r#"[ OpSys = "LINUX"; Memory = 512 ]"#);
/// assert!(ad.get("MEMORY").is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassAd {
    attributes: BTreeMap<Name, Arc<Expr>>,
}

impl ClassAd {
    /// An ad without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a name; what it was bound to before is returned. A name that is there keeps its letters.
    pub fn insert(
        &mut self,
        name: impl Into<Name>,
        expr: impl Into<Arc<Expr>>,
    ) -> Option<Arc<Expr>> {
        self.attributes.insert(name.into(), expr.into())
    }

    /// What a name is bound to.
    #[must_use]
    pub fn get(&self, name: impl Into<Name>) -> Option<&Arc<Expr>> {
        self.lookup(&name.into())
    }

    pub(crate) fn lookup(&self, name: &Name) -> Option<&Arc<Expr>> {
        self.attributes.get(name)
    }

    /// Takes an attribute away.
    pub fn remove(&mut self, name: impl Into<Name>) -> Option<Arc<Expr>> {
        self.attributes.remove(&name.into())
    }

    /// All attributes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Arc<Expr>)> {
        self.attributes.iter()
    }

    /// How many attributes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Whether there is no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }
}

impl<N: Into<Name>, E: Into<Arc<Expr>>> FromIterator<(N, E)> for ClassAd {
    fn from_iter<I: IntoIterator<Item = (N, E)>>(attributes: I) -> Self {
        let mut ad = Self::new();
        for (name, expr) in attributes {
            ad.insert(name, expr);
        }
        ad
    }
}

macro_rules! literals {
    ($($from:ty => $variant:ident),*) => { $(
        impl From<$from> for Expr {
            fn from(value: $from) -> Self {
                Self::Literal(Literal::$variant(value.into()))
            }
        }
    )* };
}
literals!(bool => Boolean, i64 => Integer, i32 => Integer, f64 => Real, &str => String, String => String);
