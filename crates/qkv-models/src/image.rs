//! Pictures as tokens: each is cut into patches, which a dense layer embeds.

use crate::dense::Linear;
use crate::error::{Error, Result};
use crate::model::Batch;
use crate::open::Opened;
use crate::tokens::Tokens;
use candle_core::{Device, Tensor};

/// How pictures are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Numbers of a pixel.
    pub channels: usize,
    /// Height and width of a picture.
    pub image: [usize; 2],
    /// Height and width of a patch.
    pub patch: [usize; 2],
}

impl Cut {
    /// Patches below each other, and side by side.
    pub fn patches(&self) -> [usize; 2] {
        [
            self.image[0] / self.patch[0].max(1),
            self.image[1] / self.patch[1].max(1),
        ]
    }

    /// Tokens: the class's own, then the patches row by row.
    pub fn tokens(&self) -> usize {
        let [rows, columns] = self.patches();
        rows.saturating_mul(columns).saturating_add(1)
    }

    /// The pixels of each patch, one after the other: channels, rows, columns.
    fn rearranged(&self, pixels: &[f32]) -> Vec<f32> {
        let [height, width] = self.image;
        let [rows, columns] = self.patches();
        let mut all = Vec::with_capacity(pixels.len());
        for patch in 0..rows * columns {
            let (top, left) = (
                patch / columns * self.patch[0],
                patch % columns * self.patch[1],
            );
            for channel in 0..self.channels {
                for row in top..top + self.patch[0] {
                    let start = (channel * height + row) * width + left;
                    all.extend_from_slice(&pixels[start..start + self.patch[1]]);
                }
            }
        }
        all
    }
}

/// What embeds patches.
#[derive(Clone, Debug)]
pub(crate) struct Patches {
    pub(crate) cut: Cut,
    /// The embedding of the class's token, `[1, width]`.
    pub(crate) first: Tensor,
    pub(crate) projection: Linear,
}

impl Opened {
    /// The model as it looks at a picture, whose patches are its tokens, and the batch that they are.
    /// Pixels are `[channels, height, width]`, prepared as the model wants them.
    ///
    /// # Errors
    /// A model of texts, and pixels of another shape or that are no finite numbers.
    pub fn image(&self, pixels: &[f32], shape: &[usize]) -> Result<(Opened, Batch)> {
        let wrong = |found: String, remedy: String| Error::Text {
            what: "the picture",
            found,
            remedy,
        };
        let Some(patches) = &self.model.embedding.patches else {
            let found = format!("is given to a {} model", self.model.config().family);
            return Err(wrong(found, "give it a text".into()));
        };
        let cut = patches.cut;
        let expected = [cut.channels, cut.image[0], cut.image[1]];
        let own = match shape {
            [1, own @ ..] if own.len() == 3 => own,
            own => own,
        };
        if own != expected || pixels.len() != expected.iter().product::<usize>() {
            return Err(wrong(
                format!("has the shape {}", qkv_io::shown_shape(shape)),
                format!("give pixels of {}", qkv_io::shown_shape(&expected)),
            ));
        }
        if let Some(at) = pixels.iter().position(|x| !x.is_finite()) {
            let found = format!("holds {} at place {at}", pixels[at]);
            return Err(wrong(found, "give finite numbers".into()));
        }
        let [rows, columns] = cut.patches();
        let of_patch = cut.channels * cut.patch[0] * cut.patch[1];
        let flat = Tensor::from_vec(
            cut.rearranged(pixels),
            (1, rows * columns, of_patch),
            &Device::Cpu,
        )?;
        let embedded = patches.projection.forward(&flat)?.squeeze(0)?;
        let mut model = self.model.clone();
        model.embedding.tokens = Tensor::cat(&[&patches.first, &embedded], 0)?;
        let ids: Vec<u32> = (0..cut.tokens() as u32).collect();
        let opened = Opened {
            model,
            tokens: self.tokens.clone(),
            name: self.name.clone(),
            path: self.path.clone(),
        };
        Ok((opened, Batch::new(&[ids], crate::Padding::Right, 0)?))
    }
}

impl Tokens {
    /// Names of the class's token and of patches, by row and column.
    pub(crate) fn of_patches(cut: &Cut) -> Result<Tokens> {
        let [rows, columns] = cut.patches();
        let each = (0..rows * columns).map(|at| format!("{},{}", at / columns, at % columns));
        let names = std::iter::once("[CLS]".to_owned()).chain(each);
        let vocabulary: serde_json::Map<_, _> = names.zip((0_u64..).map(Into::into)).collect();
        let json = serde_json::json!({
            "version": "1.0",
            "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[CLS]"},
        });
        Tokens::from_json(&json, "patches")
    }
}
