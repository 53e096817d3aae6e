% Writes all that Octave's own "load -hdf5" finds in argv(){1} into the folder argv(){2}: index.tsv and one file of raw values per item.
1;

function walk (folder, value, path)
  global index count
  if (isstruct (value))
    for name = fieldnames (value)'
      walk (folder, value.(name{1}), [path "/" name{1}]);
    endfor
    return
  endif
  count += 1;
  item = sprintf ("%d.bin", count);
  out = fopen (fullfile (folder, item), "w");
  fwrite (out, value, class (value));
  fclose (out);
  fprintf (index, "variable\t%s\t\t%s\t%s\n", path, class (value), item);
endfunction

global index count
count = 0;
index = fopen (fullfile (argv (){2}, "index.tsv"), "w");
walk (argv (){2}, load ("-hdf5", argv (){1}), "");
fclose (index);
