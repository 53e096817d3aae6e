# Writes all that R's ncdf4 finds in the first argument into the folder of the second: index.tsv and one file of raw values per item.
suppressMessages(library(ncdf4))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[2]
index <- file(file.path(folder, "index.tsv"), "w")
count <- 0

put <- function(kind, path, name, value) {
  count <<- count + 1
  item <- paste0(count, ".bin")
  out <- file(file.path(folder, item), "wb")
  if (is.character(value)) {
    # One line of hexadecimal bytes per text: nothing in a text can then be taken for a separator.
    lines <- vapply(as.vector(value), function(text) paste(as.character(charToRaw(text)), collapse = ""), "")
    writeLines(lines, out)
    type <- "text"
  } else {
    writeBin(as.double(value), out)
    type <- "double"
  }
  close(out)
  cat(kind, path, name, type, item, sep = "\t", file = index)
  cat("\n", file = index)
}

put_attributes <- function(path, attributes) {
  for (name in names(attributes)) put("attribute", path, name, attributes[[name]])
}

run <- nc_open(arguments[1], readunlim = FALSE)
put_attributes("", ncatt_get(run, 0))
for (group in run$group) {
  if (group$fqgn != "") put_attributes(paste0("/", group$fqgn), ncatt_get(run, group$fqgn))
}
for (variable in run$var) {
  path <- paste0("/", variable$name)
  put("variable", path, "", ncvar_get(run, variable, collapse_degen = FALSE, raw_datavals = TRUE))
  put_attributes(path, ncatt_get(run, variable$name))
}
for (dimension in run$dim) {
  if (dimension$dimvarid$id >= 0) {
    path <- paste0("/", dimension$name)
    put("variable", path, "", ncvar_get(run, dimension$name, raw_datavals = TRUE))
    put_attributes(path, ncatt_get(run, dimension$name))
  }
}
close(index)
nc_close(run)
