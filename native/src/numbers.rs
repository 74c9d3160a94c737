//! Views of columns of numbers.

/// Numbers in a buffer, with any alignment.
#[derive(Clone, Copy, Default)]
pub struct Int64s<'a>(&'a [u8]);

#[derive(Clone, Copy, Default)]
pub struct Int32s<'a>(&'a [u8]);

macro_rules! numbers {
    ($name:ident, $number:ty, $size:literal) => {
        impl<'a> $name<'a> {
            /// Return None if the length of `bytes` is not a multiple of the size of a number.
            pub fn of(bytes: &'a [u8]) -> Option<Self> {
                (bytes.len() % $size == 0).then_some(Self(bytes))
            }

            pub fn len(self) -> usize {
                self.0.len() / $size
            }

            pub fn is_empty(self) -> bool {
                self.0.is_empty()
            }

            /// Return the number at `index`, or 0 if there are fewer numbers.
            #[inline(always)]
            pub fn get(self, index: usize) -> $number {
                let at = index.wrapping_mul($size);
                match self.0.get(at..at.wrapping_add($size)) {
                    Some(bytes) => <$number>::from_ne_bytes(bytes.try_into().unwrap_or_default()),
                    None => 0,
                }
            }
        }
    };
}

numbers!(Int64s, i64, 8);
numbers!(Int32s, i32, 4);
