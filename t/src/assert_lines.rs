//! Asserts that two long lists of lines are equal. A failure shows only the differences.

pub fn assert_lines(is: &[String], should_be: &[String], what: &str) {
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        let differs = one.iter().filter(|line| !other.contains(line));
        differs.cloned().collect()
    };
    let (surplus, missing) = (only(is, should_be), only(should_be, is));
    assert!(
        surplus.is_empty() && missing.is_empty(),
        "{what}\nsurplus: {surplus:#?}\nmissing: {missing:#?}"
    );
    assert_eq!(
        is, should_be,
        "{what}: the same lines in another order or number"
    );
}
