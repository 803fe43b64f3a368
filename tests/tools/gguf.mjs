// What @huggingface/gguf, a parser that is not ours, finds in a GGUF file: version, pairs, and the tensors with their
// places, as JSON. Usage: node gguf.mjs FOLDER_OF_NODE_MODULES FILE
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.argv[2] + "/");
const { gguf, GGMLQuantizationType } = require("@huggingface/gguf");
const bytes = readFileSync(process.argv[3]);
const fetch = async (_url, options) => {
    const range = /bytes=(\d+)-(\d+)/.exec(new Headers(options?.headers).get("Range") ?? "");
    const part = range ? bytes.subarray(Number(range[1]), Number(range[2]) + 1) : bytes;
    return new Response(part, { status: range ? 206 : 200 });
};
const found = await gguf("https://nowhere.invalid/model.gguf", { fetch });
const plain = (_key, value) => (typeof value === "bigint" ? Number(value) : value);
const metadata = { ...found.metadata };
console.log(
    JSON.stringify(
        {
            version: metadata.version,
            architecture: metadata["general.architecture"],
            metadata: Number(metadata.kv_count),
            tokens: metadata["tokenizer.ggml.tokens"].length,
            alignment: metadata["general.alignment"],
            tensors: found.tensorInfos.map((t) => ({
                name: t.name,
                dtype: GGMLQuantizationType[t.dtype],
                shape: t.shape.map(Number).reverse(),
                offset: Number(t.offset), // from where the data begin
            })),
        },
        plain,
    ),
);
