"""Write a picture of a page as a small PNG: text on one colour needs half the bytes if its lines are not filtered."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Decodes a PNG in the browser, and returns its width, height and pixels (red, green, blue, alpha).
_DECODE = """async (content) => {
  const picture = new Image();
  picture.src = `data:image/png;base64,${content}`;
  await picture.decode();
  const { width, height } = picture;
  const drawing = new OffscreenCanvas(width, height).getContext("2d");
  drawing.drawImage(picture, 0, 0);
  const pixels = drawing.getImageData(0, 0, width, height).data;
  let text = "";
  for (let at = 0; at < pixels.length; at += 32768) text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  return [width, height, btoa(text)];
}"""


def write_small(browser: Browser, content: bytes, file: Path) -> None:
    """Write a PNG without transparency again, with the same pixels."""
    tab = browser.new_page()
    try:
        width, height, text = tab.evaluate(_DECODE, base64.b64encode(content).decode())
    finally:
        tab.close()
    pixels = bytearray(base64.b64decode(text))
    del pixels[3::4]
    lines = (b"\0" + pixels[3 * width * row : 3 * width * (row + 1)] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(lines), 9)
    chunks = b"".join(_chunk(*part) for part in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
