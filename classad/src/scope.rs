//! Where names are looked for: an ad, and the ads around it.

use crate::ad::ClassAd;
use std::sync::Arc;

/// An ad, and the scope around it.
#[derive(Clone, Debug)]
pub struct Scope(Arc<Place>);

#[derive(Debug)]
struct Place {
    ad: Arc<ClassAd>,
    parent: Option<Scope>,
    side: Option<Side>,
}

/// Which of the two ads of a match a scope is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Scope {
    /// An ad with nothing around it.
    #[must_use]
    pub fn of(ad: Arc<ClassAd>) -> Self {
        Self::within(ad, None)
    }

    pub(crate) fn within(ad: Arc<ClassAd>, parent: Option<Scope>) -> Self {
        Self(Arc::new(Place {
            ad,
            parent,
            side: None,
        }))
    }

    pub(crate) fn of_side(ad: Arc<ClassAd>, parent: Scope, side: Side) -> Self {
        Self(Arc::new(Place {
            ad,
            parent: Some(parent),
            side: Some(side),
        }))
    }

    /// The ad itself.
    #[must_use]
    pub fn ad(&self) -> &Arc<ClassAd> {
        &self.0.ad
    }

    pub(crate) fn parent(&self) -> Option<&Scope> {
        self.0.parent.as_ref()
    }

    pub(crate) fn side(&self) -> Option<Side> {
        self.0.side
    }

    pub(crate) fn root(&self) -> &Scope {
        let mut scope = self;
        while let Some(parent) = scope.parent() {
            scope = parent;
        }
        scope
    }

    pub(crate) fn is(&self, other: &Scope) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || Arc::ptr_eq(&self.0.ad, &other.0.ad)
    }
}
