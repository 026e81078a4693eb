//! The nearest known word to one that is not known.

/// The candidate that was probably meant, if any is near enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One typing error per three characters still tells what was meant.
    let limit = (word.chars().count() / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    scored.filter(|(score, _)| *score <= limit).min().map(|(_, candidate)| candidate)
}

/// "did you mean ...?", or the list of all.
pub fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut all: Vec<&str> = candidates.into_iter().collect();
    all.sort_unstable();
    if let Some(near) = nearest(word, all.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    if all.is_empty() {
        return None;
    }
    Some(format!("possible are {}", all.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")))
}

/// Insertions, deletions, replacements and swaps of neighbours from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_near_and_other_words_are_not() {
        let keys = ["vcpus", "memory_mib", "weight"];
        assert_eq!(nearest("vcpu", keys), Some("vcpus"));
        assert_eq!(nearest("vpcus", keys), Some("vcpus"));
        assert_eq!(nearest("memory_mb", keys), Some("memory_mib"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(hint("colour", keys).as_deref(), Some("possible are `memory_mib`, `vcpus`, `weight`"));
    }
}
