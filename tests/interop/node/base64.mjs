// Bytes are base64 in orders and answers, or null.

export const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, "base64"));
export const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString("base64"));
