// Through the page cache or around it: what users may ask for.
#pragma once

namespace outcrop::aggregate {

enum class Path {
  automatic,  ///< around it, unless it was measured to be slower or the file is in the cache
  buffered,   ///< through the page cache
  direct,     ///< around it, in whole pages
};

}  // namespace outcrop::aggregate
