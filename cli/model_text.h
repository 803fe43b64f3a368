/* What 'wideout info' says of other people's models that are no safetensors. */
#ifndef WOI_CLI_MODEL_TEXT_H
#define WOI_CLI_MODEL_TEXT_H

#include "cli.h"

int cli_fasttext_info(const char *path, bool json);
int cli_gguf_info(const char *path, bool json);

#endif
