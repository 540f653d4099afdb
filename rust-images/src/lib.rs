//! Decodes PNG, JPEG, WebP and GIF images. engine/vision/decode.ts creates an instance of this module per image.
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use moxcms::{ColorProfile, DataColorSpace, Layout, TransformOptions};
use std::io::Cursor;

/// Maximum bytes that a decoder may allocate beside the image.
const MOST_BYTES: u64 = 512 << 20;

/// Maximum rounding error, in levels, of a conversion from an sRGB profile to sRGB.
const ROUNDING: u8 = 2;
/// Pixels per conversion. It bounds the converter's memory.
const CHUNK: usize = 1 << 14;

/// Results of decoding. engine/vision/decode.ts reads their numbers.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Status {
    Decoded,
    /// The format is not PNG, JPEG, WebP or GIF.
    Unknown,
    TooLarge,
    Broken,
}

/// A decoded image: 8-bit red, green and blue values. If decoding failed, `pixels` is null, and the size may be 0.
#[repr(C)]
pub struct Decoded {
    status: u32,
    width: u32,
    height: u32,
    pixels: *const u8,
}

/// Allocates memory for an encoded image. The memory is freed with the instance.
#[unsafe(no_mangle)]
pub extern "C" fn allocate(bytes: usize) -> *mut u8 {
    Vec::leak(vec![0; bytes]).as_mut_ptr()
}

/// Decodes an image of at most `most` pixels. Applies the EXIF orientation, draws the image on white, and converts its
/// colours to sRGB.
///
/// # Safety
/// `bytes` holds `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn decode(bytes: *const u8, length: usize, most: u32) -> *const Decoded {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    let mut size = (0, 0);
    let (status, pixels) = match read(bytes, u64::from(most), &mut size) {
        Ok(pixels) => (Status::Decoded, Vec::leak(pixels).as_ptr()),
        Err(status) => (status, std::ptr::null()),
    };
    Box::leak(Box::new(Decoded { status: status as u32, width: size.0, height: size.1, pixels }))
}

fn read(bytes: &[u8], most: u64, size: &mut (u32, u32)) -> Result<Vec<u8>, Status> {
    let format = match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP | ImageFormat::Gif)) => format,
        _ => return Err(Status::Unknown),
    };
    if format == ImageFormat::Jpeg && !has_end(bytes) {
        return Err(Status::Broken);
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(MOST_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| status_of(&error))?;
    *size = decoder.dimensions();
    if u64::from(size.0) * u64::from(size.1) > most {
        return Err(Status::TooLarge);
    }
    let (image, profile) = decoder
        .orientation()
        .and_then(|orientation| {
            let profile = decoder.icc_profile()?;
            let mut image = DynamicImage::from_decoder(decoder)?;
            image.apply_orientation(orientation);
            Ok((image, profile))
        })
        .map_err(|error| status_of(&error))?;
    *size = (image.width(), image.height());
    let colours = if image.color().has_color() { DataColorSpace::Rgb } else { DataColorSpace::Gray };
    let mut pixels = on_white(image);
    if let Some(profile) = profile.and_then(|bytes| ColorProfile::new_from_slice(&bytes).ok())
        && profile.color_space == colours
    {
        into_srgb(&mut pixels, &profile);
    }
    Ok(pixels)
}

fn status_of(error: &ImageError) -> Status {
    if matches!(error, ImageError::Limits(_)) { Status::TooLarge } else { Status::Broken }
}

/// Whether a JPEG file has an end marker after its last scan. Decoders fill the missing part of a truncated file with
/// grey.
fn has_end(bytes: &[u8]) -> bool {
    let marker = |code: u8| bytes.array_windows().rposition(|pair| *pair == [0xff, code]);
    matches!((marker(0xda), marker(0xd9)), (Some(scan), Some(end)) if scan < end)
}

fn on_white(image: DynamicImage) -> Vec<u8> {
    if !image.color().has_alpha() {
        return image.into_rgb8().into_raw();
    }
    let mixed = |value: u8, alpha: u8| {
        ((u32::from(value) * u32::from(alpha) + 255 * (255 - u32::from(alpha)) + 127) / 255) as u8
    };
    image
        .into_rgba8()
        .pixels()
        .flat_map(|pixel| {
            let [red, green, blue, alpha] = pixel.0;
            [red, green, blue].map(|value| mixed(value, alpha))
        })
        .collect()
}

/// Converts red, green and blue values from a colour profile to sRGB. Ignores profiles that the library cannot convert.
fn into_srgb(pixels: &mut [u8], profile: &ColorProfile) {
    let gray = profile.color_space == DataColorSpace::Gray;
    let layout = if gray { Layout::Gray } else { Layout::Rgb };
    let Ok(transform) =
        profile.create_transform_8bit(layout, &ColorProfile::new_srgb(), Layout::Rgb, TransformOptions::default())
    else {
        return;
    };
    let convert = |colours: &mut [u8]| {
        let values: Vec<u8> = colours.iter().copied().step_by(if gray { 3 } else { 1 }).collect();
        let _ = transform.transform(&values, colours);
    };
    // Pixels with an sRGB profile stay unchanged, because a conversion would only add rounding errors.
    let level = |index: usize| (index * 255 / 8) as u8;
    let samples: Vec<u8> = (0..9 * 9 * 9)
        .flat_map(|i| if gray { [level(i % 9); 3] } else { [level(i % 9), level(i / 9 % 9), level(i / 81)] })
        .collect();
    let mut converted = samples.clone();
    convert(&mut converted);
    if samples.iter().zip(&converted).all(|(a, b)| a.abs_diff(*b) <= ROUNDING) {
        return;
    }
    pixels.chunks_mut(3 * CHUNK).for_each(convert);
}
