import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.eclipse.jgit.api.Git;
import org.eclipse.jgit.revwalk.RevCommit;

/** Works in a repository as a Java tool would: reads, commits, branches, merges, packs. */
public class Client {
	public static void main(String[] args) throws Exception {
		File dir = new File(args[0]);
		try (Git git = Git.open(dir)) {
			String branch = git.getRepository().getBranch();
			for (RevCommit c : git.log().call()) {
				System.out.println("log " + c.getShortMessage());
			}
			Files.write(new File(dir, "jgit").toPath(), "by jgit\n".getBytes(StandardCharsets.UTF_8));
			git.add().addFilepattern("jgit").call();
			commit(git, "jgit one");
			git.checkout().setCreateBranch(true).setName("jgit-topic").call();
			Files.write(new File(dir, "jgit").toPath(), "topic\n".getBytes(StandardCharsets.UTF_8));
			commit(git, "jgit topic");
			git.checkout().setName(branch).call();
			git.merge().include(git.getRepository().resolve("jgit-topic")).call();
			git.tag().setName("jgit-tag").setMessage("tag").call();
			Files.write(new File(dir, "jgit").toPath(), "stashed\n".getBytes(StandardCharsets.UTF_8));
			git.stashCreate().call();
			git.stashApply().call();
			git.reset().setMode(org.eclipse.jgit.api.ResetCommand.ResetType.HARD).call();
			System.out.println("gc " + git.gc().call().isEmpty());
			System.out.println("clean " + git.status().call().isClean());
		}
	}

	private static void commit(Git git, String message) throws Exception {
		git.commit().setAll(true).setMessage(message).setAuthor("J", "j@example.test").setCommitter("J", "j@example.test").call();
	}
}
