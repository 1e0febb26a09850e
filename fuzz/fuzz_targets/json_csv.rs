//! Any text as a file: JSON, csv or rows of numbers.
//!
//! What is read is written as JSON and read again: it must be the same array.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = qkv_io::read_bytes(text.as_bytes(), Some("q"), "fuzz").map_err(|e| e.to_string());
    let Ok(array) = qkv_io::read_bytes(text.as_bytes(), None, "fuzz") else {
        return;
    };
    assert_eq!(array.shape.iter().product::<usize>(), array.len());
    let Ok(values) = array.to_f64() else { return };
    let number = |x: &f64| {
        if x.is_finite() {
            format!("{x:?}")
        } else {
            format!("\"{x}\"")
        }
    };
    let flat: Vec<String> = values.iter().map(number).collect();
    let json = format!("[{}]", flat.join(", "));
    let again = qkv_io::read_bytes(json.as_bytes(), None, "again").expect("our own JSON");
    let again = again.to_f64().expect("numbers");
    assert!(
        values
            .iter()
            .zip(&again)
            .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
    );
});
