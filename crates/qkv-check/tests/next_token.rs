//! What each position is trained to predict.
#![allow(missing_docs, clippy::unwrap_used)]

use qkv::{Attention, Causal, Documents, Inputs, KeyLengths, Steps, Tensor, steps};
use qkv_check::{NextToken, next_token};

fn of(attention: &Attention<'_>, queries: usize, keys: usize) -> Option<NextToken> {
    let tensor = |rows: usize| Tensor::new(&[2, 1, rows, 1], vec![1.0; 2 * rows]).unwrap();
    let (q, k) = (tensor(queries), tensor(keys));
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), k.view().unwrap());
    next_token(attention, &steps(attention, &inputs.unwrap()).unwrap())
}

#[test]
fn labels_are_the_tokens_shifted_by_one() {
    let causal = |causal| Attention {
        causal: Some(causal),
        ..Attention::default()
    };
    let next = of(&causal(Causal::Square), 3, 3).unwrap();
    assert_eq!(next.labels, [[Some(1), Some(2), None]; 2].map(Vec::from));
    assert!(next.sees_own_label.is_empty());
    // A diagonal too far, and no mask at all.
    let rows = [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]];
    for leaky in [causal(Causal::Offset(1)), Attention::default()] {
        assert_eq!(of(&leaky, 3, 3).unwrap().sees_own_label, rows);
    }
    // The last two of four tokens: top-left would see nothing of them.
    let next = of(&causal(Causal::BottomRight), 2, 4).unwrap();
    assert_eq!(next.labels[0], [Some(3), None]);
    assert!(next.sees_own_label.is_empty());
    assert_eq!(of(&Attention::default(), 4, 2), None);
    assert_eq!(next_token(&Attention::default(), &Steps::default()), None);
}

#[test]
fn nothing_follows_a_document_or_its_padding() {
    let attention = Attention {
        documents: Some(Documents::new(vec![2, 2])),
        ..Attention::default()
    };
    let next = of(&attention, 4, 4).unwrap();
    assert_eq!(next.labels[1], [Some(1), None, Some(3), None]);
    assert_eq!(next.sees_own_label.len(), 4);
    let attention = Attention {
        lengths: Some(KeyLengths(vec![4, 2])),
        ..Attention::default()
    };
    let next = of(&attention, 4, 4).unwrap();
    assert_eq!(next.labels[0], [Some(1), Some(2), Some(3), None]);
    assert_eq!(next.labels[1], [Some(1), None, None, None]);
}
