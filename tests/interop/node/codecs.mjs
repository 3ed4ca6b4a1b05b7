// The codecs of kafkajs.  It brings gzip; the others are packages, none of which fetches or builds anything on install:
// snappy in plain JavaScript, lz4 as a prebuilt package for each platform, zstd as WebAssembly.

import { pathToFileURL } from "node:url";

const OUTPUT_BYTES = 64 << 20; // What one batch may become.

export async function register(require) {
  const { CompressionCodecs, CompressionTypes } = require("kafkajs");
  CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
  CompressionCodecs[CompressionTypes.LZ4] = () => lz4(require("lz4-napi"));
  const zstd = await loadZstd(require);
  CompressionCodecs[CompressionTypes.ZSTD] = () => zstd;
  return {
    none: CompressionTypes.None,
    gzip: CompressionTypes.GZIP,
    snappy: CompressionTypes.Snappy,
    lz4: CompressionTypes.LZ4,
    zstd: CompressionTypes.ZSTD,
  };
}

function lz4(library) {
  return {
    compress: (encoder) => library.compressFrame(encoder.buffer),
    decompress: (bytes) => library.decompressFrame(bytes),
  };
}

async function loadZstd(require) {
  // An ES module only, which `require` can find but not load.
  const { Zstd } = await import(pathToFileURL(require.resolve("@hpcc-js/wasm-zstd")));
  const library = await Zstd.load();
  return {
    compress: async (encoder) => Buffer.from(library.compress(encoder.buffer)),
    decompress: async (bytes) => {
      library.reset();
      return Buffer.from(library.decompressChunk(bytes, OUTPUT_BYTES)); // Frames need not tell their content's size.
    },
  };
}
