#ifndef WOI_CLI_WORDS_H
#define WOI_CLI_WORDS_H

/* What an option of the library is called here, but for '_' and '-': K is bits. */
const char *cli_word_of(const char *option);

#endif
