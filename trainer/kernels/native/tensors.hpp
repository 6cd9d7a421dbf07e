// Checks a tensor's type, shape, device and layout before a kernel gets its address, so that no caller can forget it. A
// check costs about a quarter of a microsecond. All of this needs the interpreter.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace protein {

namespace py = pybind11;

// Names that are looked up on every tensor, created once. Like the dtypes, they live as long as the process.
struct Names {
    PyObject *shape = PyUnicode_InternFromString("shape"), *dtype = PyUnicode_InternFromString("dtype"),
             *is_cpu = PyUnicode_InternFromString("is_cpu"), *stride = PyUnicode_InternFromString("stride"),
             *is_contiguous = PyUnicode_InternFromString("is_contiguous"),
             *data_ptr = PyUnicode_InternFromString("data_ptr");
    py::handle float32 = torch("float32"), int32 = torch("int32"), boolean = torch("bool"),
               bfloat16 = torch("bfloat16"), uint8 = torch("uint8");

    static py::handle torch(const char *name) { return py::object(py::module_::import("torch").attr(name)).release(); }
};

inline const Names &names() {
    static const Names *made = new Names();
    return *made;
}

template <typename T>
py::handle dtype_of();
template <>
inline py::handle dtype_of<float>() {
    return names().float32;
}
template <>
inline py::handle dtype_of<std::int32_t>() {
    return names().int32;
}
template <>
inline py::handle dtype_of<std::uint8_t>() {
    return names().boolean;
}

template <>
inline py::handle dtype_of<std::byte>() {
    return names().uint8;
}

// bfloat16 numbers, as their bits.
template <>
inline py::handle dtype_of<std::uint16_t>() {
    return names().bfloat16;
}

// A float32 matrix whose rows are contiguous and `stride` numbers apart.
struct Rows {
    float *at;
    size_t stride;
};

// A tensor as it came from Python, or None, with the name that errors use for it.
class Tensor {
   public:
    // `number`: of several tensors with one name.
    Tensor(py::handle tensor, const char *name, int number = -1) : tensor_(tensor), name_(name), number_(number) {}

    bool is_none() const { return tensor_.is_none(); }

    // The lengths of its N dimensions; ValueError where it has another number of them.
    template <size_t N>
    std::array<size_t, N> shape() const {
        if (is_none()) throw py::value_error(name() + " must have " + std::to_string(N) + " dimensions, got None");
        const py::object found = attribute(names().shape);
        std::array<size_t, N> lengths{};
        if (!fits(found, N))
            throw py::value_error(name() + " must have " + std::to_string(N) + " dimensions, got shape " + text(found));
        for (size_t i = 0; i < N; ++i) lengths[i] = length(found, i);
        return lengths;
    }

    // The address of its numbers; null for None. ValueError unless it is a contiguous CPU tensor of T and of this
    // shape.
    template <typename T, size_t N>
    T *contiguous(const std::array<size_t, N> &shape) const {
        if (is_none()) return nullptr;
        if (!is<T>(shape) || call(names().is_contiguous).ptr() != Py_True) refuse<T>("contiguous", shape);
        return address<T>();
    }

    // The same for a tensor of float32 or of bfloat16.
    template <size_t N>
    void *floating(const std::array<size_t, N> &shape, bool bfloat16) const {
        return bfloat16 ? static_cast<void *>(contiguous<std::uint16_t>(shape)) : contiguous<float>(shape);
    }

    bool is_bfloat16() const { return dtype_is<std::uint16_t>(); }

    bool is_bytes() const { return dtype_is<std::byte>(); }

    // The address of the numbers of a contiguous float32 CPU tensor `... x columns`; null for None. `rows`: the product
    // of all dimensions but the last; ValueError for any other product.
    float *flat(size_t columns, size_t rows) const {
        if (is_none()) return nullptr;
        if (!dtype_is<float>() || call(names().is_contiguous).ptr() != Py_True || num_rows(columns) != rows)
            refuse<float>("contiguous", py::make_tuple(rows, columns));
        return address<float>();
    }

    // The product of all dimensions but the last; ValueError unless that one has `columns`.
    size_t num_rows(size_t columns) const {
        const py::object found = attribute(names().shape);
        const size_t dimensions = static_cast<size_t>(PyTuple_Size(found.ptr()));
        if (dimensions == 0 || length(found, dimensions - 1) != columns)
            throw py::value_error(name() + " must be a contiguous tensor of shape (..., " + std::to_string(columns) +
                                  "), got shape " + text(found));
        size_t rows = 1;
        for (size_t i = 0; i + 1 < dimensions; ++i) rows *= length(found, i);
        return rows;
    }

    // Its rows. ValueError unless it is a float32 CPU matrix of this shape, each row contiguous.
    Rows rows(const std::array<size_t, 2> &shape) const {
        if (!is<float>(shape)) refuse<float>("row-contiguous", shape);
        const py::object strides = call(names().stride);
        if (length(strides, 1) != 1 && shape[1] != 1) refuse<float>("row-contiguous", shape);
        return {address<float>(), length(strides, 0)};
    }

    // The rows of all steps and agents of a float32 CPU tensor `steps x agents x units`, all equally far apart.
    Rows rows(const std::array<size_t, 3> &shape) const {
        if (!is<float>(shape)) refuse<float>("row-contiguous", shape);
        const py::object strides = call(names().stride);
        const size_t step = length(strides, 0), agent = length(strides, 1);
        const bool even = shape[0] == 1 || shape[1] == 1 || step == shape[1] * agent;  // a length of 1 has any stride
        if (!even || (length(strides, 2) != 1 && shape[2] != 1)) refuse<float>("row-contiguous", shape);
        return {address<float>(), shape[1] == 1 ? step : agent};
    }

    // The address of a vector's numbers, and the distance between them. ValueError unless it is of T and of this size.
    template <typename T>
    std::pair<T *, size_t> strided(size_t size) const {
        const std::array<size_t, 1> shape{size};
        if (!is<T>(shape)) refuse<T>("strided", shape);
        return {address<T>(), length(call(names().stride), 0)};
    }

   private:
    py::object attribute(PyObject *name) const {
        PyObject *found = PyObject_GetAttr(tensor_.ptr(), name);
        if (!found) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(found);
    }

    py::object call(PyObject *name) const {
        PyObject *found = PyObject_CallMethodNoArgs(tensor_.ptr(), name);
        if (!found) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(found);
    }

    static bool fits(const py::object &lengths, size_t dimensions) {
        return PyTuple_Check(lengths.ptr()) && static_cast<size_t>(PyTuple_GET_SIZE(lengths.ptr())) == dimensions;
    }

    static size_t length(const py::object &lengths, size_t dimension) {
        return PyLong_AsSize_t(PyTuple_GET_ITEM(lengths.ptr(), static_cast<Py_ssize_t>(dimension)));
    }

    static std::string text(const py::object &value) { return py::str(py::tuple(py::list(value))).cast<std::string>(); }

    template <typename T>
    bool dtype_is() const {
        return attribute(names().dtype).is(dtype_of<T>()) && attribute(names().is_cpu).ptr() == Py_True;
    }

    template <typename T, size_t N>
    bool is(const std::array<size_t, N> &shape) const {
        if (!dtype_is<T>()) return false;
        const py::object found = attribute(names().shape);
        if (!fits(found, N)) return false;
        for (size_t i = 0; i < N; ++i)
            if (length(found, i) != shape[i]) return false;
        return true;
    }

    template <typename T>
    T *address() const {
        return static_cast<T *>(PyLong_AsVoidPtr(call(names().data_ptr).ptr()));
    }

    template <typename T, size_t N>
    [[noreturn]] void refuse(const char *order, const std::array<size_t, N> &shape) const {
        py::tuple wanted(N);
        for (size_t i = 0; i < N; ++i) wanted[i] = shape[i];
        refuse<T>(order, wanted);
    }

    template <typename T>
    [[noreturn]] void refuse(const char *order, const py::object &shape) const {
        const auto str = [](const py::object &value) { return py::str(value).cast<std::string>(); };
        throw py::value_error(name() + " must be a " + order + " " + py::str(dtype_of<T>()).cast<std::string>() +
                              " CPU tensor of shape " + text(shape) + ", got " + str(attribute(names().dtype)) +
                              " on " + str(tensor_.attr("device")) + ", shape " + text(attribute(names().shape)) +
                              ", strides " + str(call(names().stride)));
    }

    std::string name() const { return number_ < 0 ? name_ : name_ + (" " + std::to_string(number_)); }

    py::handle tensor_;
    const char *name_;
    int number_;
};

}  // namespace protein
