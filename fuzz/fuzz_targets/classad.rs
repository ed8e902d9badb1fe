//! Any bytes are an ad or an error; what an ad has is evaluated, printed and read back, and nothing panics.
#![no_main]

use classad::{Context, Match, Nowhere, parse_ad, parse_any_ads, parse_expression, parse_json_ad};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// `1 .a` is printed as the original prints it, `1.a`, which does not read back.
fn selects(text: &str) -> bool {
    text.contains('.')
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(expr) = parse_expression(bytes) {
        let _ = Context::new(&Nowhere).eval(&expr);
        let text = expr.to_string();
        assert!(selects(&text) || parse_expression(text).is_ok());
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
        let text = ad.to_string();
        assert!(selects(&text) || parse_ad(text).is_ok());
        let json = ad.to_json();
        assert!(selects(&json.to_string()) || parse_json_ad(json.as_bytes()).is_ok());
        let _ = ad.to_old();
    }
    if let [left, right, ..] = ads.as_slice() {
        let _ = Match::of(Arc::clone(left), Arc::clone(right), &Nowhere);
    }
});
