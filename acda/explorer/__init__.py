"""A page in the browser that shows the filter under the pointer: a small local server and one static page."""
