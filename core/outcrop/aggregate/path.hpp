// Through the page cache or around it: what users may ask for.
#pragma once

namespace outcrop::aggregate {

enum class Path {
  automatic,  ///< writing: around it, unless that was measured to be slower; reading: through it, if there is ample room
  buffered,   ///< through the page cache
  direct,     ///< around it, in whole pages
};

}  // namespace outcrop::aggregate
