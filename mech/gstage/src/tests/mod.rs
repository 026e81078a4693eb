mod model;
mod shootdown;
