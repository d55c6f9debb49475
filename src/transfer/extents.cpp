// SPDX-License-Identifier: Apache-2.0
#include "transfer/extents.hpp"

namespace orbite::transfer {

ExtentList ExtentListWriter::finish() {
  ExtentList list;
  list.size_ = size_;
  list.bytes_ = bytes_;
  if (size_ == 0) {
    return list;
  }
  push_last();
  std::size_t words = 0;
  for (const ColumnWriter& column : columns_) {
    words += column.words();
  }
  list.words_.reserve(words);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    list.begins_[i] = list.words_.size();
    columns_[i].append_to(list.words_);
  }
  return list;
}

}  // namespace orbite::transfer
