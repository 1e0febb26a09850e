//! The strongest links of a row.

/// A key, and the weight it has for a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The key.
    pub key: usize,
    /// Its weight.
    pub weight: f32,
}

/// The `most` largest weights of a row, the largest first, of equal ones the earlier key first.
///
/// A NaN counts as larger than every number, so that it is seen. Keys of weight 0 are left out.
///
/// ```
/// use qkv_trace::{Link, strongest};
/// let links = strongest(&[0.1, 0.6, 0.0, 0.3], 2);
/// assert_eq!(links, [Link { key: 1, weight: 0.6 }, Link { key: 3, weight: 0.3 }]);
/// ```
pub fn strongest(row: &[f32], most: usize) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::with_capacity(most.min(row.len()) + 1);
    if most == 0 {
        return links;
    }
    for (key, &weight) in row.iter().enumerate() {
        let full = links.len() == most;
        if weight == 0.0 || full && !is_larger(weight, links[most - 1].weight) {
            continue;
        }
        let at = links.partition_point(|other| !is_larger(weight, other.weight));
        links.truncate(most - 1);
        links.insert(at.min(links.len()), Link { key, weight });
    }
    links
}

fn is_larger(a: f32, b: f32) -> bool {
    match (a.is_nan(), b.is_nan()) {
        (true, false) => true,
        (_, true) => false,
        _ => a > b,
    }
}
