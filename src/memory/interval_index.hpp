// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/byte_range.hpp"
#include "base/ids.hpp"

namespace orbite::memory {

/// Which ranges cover a range? Ranges may overlap and repeat; a (address, handle) pair is in it
/// once. A treap ordered by (address, handle) in which each node also knows the largest end below
/// it. Depth is O(log n) with overwhelming probability, for every order of insertion: the
/// priorities do not depend on the ranges. One thread at a time.
class IntervalIndex {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Makes room, so that the next insert cannot fail. Throws std::bad_alloc with nothing changed.
  void reserve_one() {
    if (free_ == kNil && nodes_.size() == nodes_.capacity()) {
      nodes_.reserve(std::max<std::size_t>(16, nodes_.capacity() * 2));
    }
  }

  /// Throws std::bad_alloc with nothing changed, never after reserve_one().
  void insert(const base::ByteRange& range, Handle handle) {
    reserve_one();
    const std::uint32_t node = take_node();
    nodes_[node] = Node{.key = {range.address(), handle.packed()},
                        .end = range.end(),
                        .max_end = range.end(),
                        .priority = next_priority(),
                        .left = kNil,
                        .right = kNil};
    root_ = insert_below(root_, node);
    ++size_;
  }

  /// The pair must be in the index.
  void erase(const base::ByteRange& range, Handle handle) noexcept {
    root_ = erase_below(root_, {range.address(), handle.packed()});
    --size_;
  }

  /// Calls `visit(Handle)` for each range that covers `range`, by address, then by packed handle.
  /// O((1 + found) * log n): a subtree is entered only when one of its ranges ends late enough.
  template <typename Visit>
  void for_each_covering(const base::ByteRange& range, Visit&& visit) const {
    visit_covering(root_, range, visit);
  }

  /// Nodes on the longest way from the root.
  [[nodiscard]] std::size_t height() const noexcept { return height_below(root_); }

  /// The order, the heap, every largest end and the number of nodes are what they should be. O(n).
  [[nodiscard]] bool is_consistent() const noexcept {
    std::size_t count = 0;
    return is_consistent_below(root_, count) && count == size_;
  }

 private:
  static constexpr std::uint32_t kNil = std::numeric_limits<std::uint32_t>::max();
  using Key = std::pair<std::uint64_t, std::uint64_t>;

  struct Node {
    Key key;
    std::uint64_t end;
    std::uint64_t max_end;   ///< of this node and everything below it
    std::uint64_t priority;  ///< a heap: at least those below
    std::uint32_t left;      ///< of a free node: the next free one
    std::uint32_t right;
  };

  std::uint32_t take_node() noexcept {
    if (free_ != kNil) {
      return std::exchange(free_, nodes_[free_].left);
    }
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  void put_node(std::uint32_t node) noexcept { nodes_[node].left = std::exchange(free_, node); }

  // splitmix64 of a counter: well spread, and the same in every run.
  std::uint64_t next_priority() noexcept {
    std::uint64_t z = (priority_state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  void update(std::uint32_t node) noexcept {
    Node& it = nodes_[node];
    it.max_end = it.end;
    for (const std::uint32_t child : {it.left, it.right}) {
      if (child != kNil) {
        it.max_end = std::max(it.max_end, nodes_[child].max_end);
      }
    }
  }

  /// Cuts the tree at `node` into the keys less than `key` and the others.
  std::pair<std::uint32_t, std::uint32_t> split(std::uint32_t node, const Key& key) noexcept {
    if (node == kNil) {
      return {kNil, kNil};
    }
    if (nodes_[node].key < key) {
      const auto [less, rest] = split(nodes_[node].right, key);
      nodes_[node].right = less;
      update(node);
      return {node, rest};
    }
    const auto [less, rest] = split(nodes_[node].left, key);
    nodes_[node].left = rest;
    update(node);
    return {less, node};
  }

  /// Every key of `less` is below every key of `rest`.
  std::uint32_t merge(std::uint32_t less, std::uint32_t rest) noexcept {
    if (less == kNil || rest == kNil) {
      return less == kNil ? rest : less;
    }
    if (nodes_[less].priority >= nodes_[rest].priority) {
      nodes_[less].right = merge(nodes_[less].right, rest);
      update(less);
      return less;
    }
    nodes_[rest].left = merge(less, nodes_[rest].left);
    update(rest);
    return rest;
  }

  std::uint32_t insert_below(std::uint32_t root, std::uint32_t node) noexcept {
    if (root == kNil) {
      return node;
    }
    ORBITE_CHECK(nodes_[root].key != nodes_[node].key);
    if (nodes_[node].priority > nodes_[root].priority) {
      const auto [less, rest] = split(root, nodes_[node].key);
      nodes_[node].left = less;
      nodes_[node].right = rest;
      update(node);
      return node;
    }
    if (nodes_[node].key < nodes_[root].key) {
      nodes_[root].left = insert_below(nodes_[root].left, node);
    } else {
      nodes_[root].right = insert_below(nodes_[root].right, node);
    }
    update(root);
    return root;
  }

  std::uint32_t erase_below(std::uint32_t root, const Key& key) noexcept {
    ORBITE_CHECK(root != kNil);
    if (nodes_[root].key == key) {
      const std::uint32_t joined = merge(nodes_[root].left, nodes_[root].right);
      put_node(root);
      return joined;
    }
    if (key < nodes_[root].key) {
      nodes_[root].left = erase_below(nodes_[root].left, key);
    } else {
      nodes_[root].right = erase_below(nodes_[root].right, key);
    }
    update(root);
    return root;
  }

  template <typename Visit>
  void visit_covering(std::uint32_t node, const base::ByteRange& range, Visit& visit) const {
    while (node != kNil && nodes_[node].max_end >= range.end()) {
      const Node& it = nodes_[node];
      visit_covering(it.left, range, visit);
      if (it.key.first > range.address()) {
        return;  // so do all keys to the right
      }
      if (it.end >= range.end()) {
        visit(Handle::unpack(it.key.second));
      }
      node = it.right;
    }
  }

  [[nodiscard]] std::size_t height_below(std::uint32_t node) const noexcept {
    return node == kNil
               ? 0
               : 1 + std::max(height_below(nodes_[node].left), height_below(nodes_[node].right));
  }

  [[nodiscard]] bool is_consistent_below(std::uint32_t node, std::size_t& count) const noexcept {
    if (node == kNil) {
      return true;
    }
    const Node& it = nodes_[node];
    ++count;
    std::uint64_t max_end = it.end;
    for (const std::uint32_t child : {it.left, it.right}) {
      if (child == kNil) {
        continue;
      }
      const Node& below = nodes_[child];
      if ((below.key < it.key) != (child == it.left) || below.priority > it.priority) {
        return false;
      }
      max_end = std::max(max_end, below.max_end);
    }
    return it.max_end == max_end && is_consistent_below(it.left, count) &&
           is_consistent_below(it.right, count);
  }

  std::vector<Node> nodes_;
  std::size_t size_ = 0;
  std::uint64_t priority_state_ = 0;
  std::uint32_t root_ = kNil;
  std::uint32_t free_ = kNil;
};

}  // namespace orbite::memory
