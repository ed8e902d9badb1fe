//! Any bytes are an ad or an error; what an ad has is evaluated, printed and read back, and nothing panics.
#![no_main]

use classad::{Context, Match, Nowhere, parse_any_ads, parse_expression, parse_json_ad, parse_ad};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(expr) = parse_expression(bytes) {
        let _ = Context::new(&Nowhere).eval(&expr);
        assert!(parse_expression(expr.to_string()).is_ok());
    }
    let Ok(ads) = parse_any_ads(bytes) else {
        return;
    };
    let ads: Vec<_> = ads.into_iter().map(Arc::new).collect();
    for ad in &ads {
        let context = Context::new(&Nowhere).with_my(Arc::clone(ad));
        for (name, expr) in ad.iter() {
            let _ = context.eval_attribute(name.clone());
            let _ = (context.flatten(expr), context.external_references(expr));
        }
        assert!(parse_ad(ad.to_string()).is_ok());
        assert!(parse_json_ad(ad.to_json().as_bytes()).is_ok());
        let _ = ad.to_old();
    }
    if let [left, right, ..] = ads.as_slice() {
        let _ = Match::of(Arc::clone(left), Arc::clone(right), &Nowhere);
    }
});
