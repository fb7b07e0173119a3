// Through the page cache or around it: what users may ask for.
#pragma once

namespace outcrop::aggregate {

enum class Path {
  automatic,  ///< what is best for the step: see access.hpp
  buffered,   ///< through the page cache
  direct,     ///< around it, in whole pages
};

}  // namespace outcrop::aggregate
