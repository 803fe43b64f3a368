/* The workshop: networks that end in a wide layer, and their data. All that the tool and the benchmarks use of net/ and
 * text/, and with them the clock and characters. */
#ifndef WOI_NET_NET_H
#define WOI_NET_NET_H

#include "base/clock.h"
#include "base/utf8.h"
#include "net/examples.h"
#include "net/network.h"
#include "net/queries.h"
#include "net/reader.h"
#include "net/synthetic.h"
#include "net/train.h"
#include "text/deb822.h"
#include "text/names_text.h"
#include "text/split.h"
#include "text/tokens.h"
#include "text/xc.h"

#endif
