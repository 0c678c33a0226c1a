/* One UTF-8 character at a time, read and written. */
#include "core/utf8.h"

/* The length in bytes of a character that starts with `lead`, and the range of its second byte. That range excludes
 * overlong forms (after E0 and F0), surrogates (after ED) and everything above U+10FFFF (after F4). */
static int sequence(unsigned lead, unsigned *low, unsigned *high)
{
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return MR_UTF8_INVALID;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

int mr_utf8_read(const char *text, size_t size, uint32_t *codepoint)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned low, high;
    int length = sequence(bytes[0], &low, &high);
    if (length < 0) return MR_UTF8_INVALID;
    uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == size) return MR_UTF8_UNFINISHED;
        if (bytes[i] < low || bytes[i] > high) return MR_UTF8_INVALID;
        value = value << 6 | (bytes[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *codepoint = value;
    return length;
}

int mr_utf8_write(uint32_t codepoint, char out[4])
{
    int length = codepoint < 0x80 ? 1 : codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
    uint32_t mark = length == 1 ? 0 : 0xF00u >> length & 0xFF;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (codepoint & 0x3F));
        codepoint >>= 6;
    }
    out[0] = (char)(mark | codepoint);
    return length;
}
