// SPDX-License-Identifier: Apache-2.0
// Descriptors and descriptor lists as they lie in memory at NIXL's backend interface. Everything
// here is inline, so that neither a plugin nor a test of one links NIXL's libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nixl_types.h"

class nixlBasicDesc {
 public:
  uintptr_t addr;
  size_t len;
  uint64_t devId;

  // Leaves the members unset, as NIXL does.
  nixlBasicDesc() {}
  nixlBasicDesc(const uintptr_t& address, const size_t& length, const uint64_t& device)
      : addr(address), len(length), devId(device) {}
};

class nixlBlobDesc : public nixlBasicDesc {
 public:
  nixl_blob_t metaInfo;

  using nixlBasicDesc::nixlBasicDesc;
  nixlBlobDesc(const uintptr_t& address, const size_t& length, const uint64_t& device,
               const nixl_blob_t& blob)
      : nixlBasicDesc(address, length, device), metaInfo(blob) {}
};

// The order of the virtual functions is NIXL's: destructor, resize, addDesc, getIndex.
template <class T>
class nixlDescList {
 protected:
  nixl_mem_t type;
  std::vector<T> descs;

 public:
  nixlDescList(const nixl_mem_t& mem_type, const int& size = 0)
      : type(mem_type), descs(static_cast<size_t>(size)) {}
  nixlDescList(const nixlDescList&) = default;
  nixlDescList& operator=(const nixlDescList&) = default;
  virtual ~nixlDescList() = default;

  nixl_mem_t getType() const { return type; }
  int descCount() const { return static_cast<int>(descs.size()); }
  bool isEmpty() const noexcept { return descs.empty(); }

  const T& operator[](size_t index) const { return descs[index]; }
  T& operator[](size_t index) { return descs[index]; }
  auto begin() const { return descs.begin(); }
  auto end() const { return descs.end(); }
  auto begin() { return descs.begin(); }
  auto end() { return descs.end(); }

  virtual void resize(const size_t& count) { descs.resize(count); }
  virtual void addDesc(const T& desc) { descs.push_back(desc); }
  // The index of the descriptor of the same place, NIXL_ERR_NOT_FOUND if there is none.
  virtual int getIndex(const nixlBasicDesc& query) const {
    for (size_t i = 0; i < descs.size(); ++i) {
      if (descs[i].addr == query.addr && descs[i].len == query.len &&
          descs[i].devId == query.devId) {
        return static_cast<int>(i);
      }
    }
    return NIXL_ERR_NOT_FOUND;
  }

  void reserve(size_t count) { descs.reserve(count); }
  void clear() { descs.clear(); }
  template <class... Args>
  T& emplace(Args&&... args) {
    return descs.emplace_back(std::forward<Args>(args)...);
  }
};

using nixl_xfer_dlist_t = nixlDescList<nixlBasicDesc>;
using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;

static_assert(sizeof(nixlBasicDesc) == 24);
static_assert(offsetof(nixlBasicDesc, addr) == 0 && offsetof(nixlBasicDesc, len) == 8 &&
              offsetof(nixlBasicDesc, devId) == 16);
static_assert(sizeof(nixlBlobDesc) == 56);
static_assert(sizeof(nixl_xfer_dlist_t) == 40 && sizeof(nixl_reg_dlist_t) == 40);
